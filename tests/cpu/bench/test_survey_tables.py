"""The table of plans of random problems, from made-up surveys."""

import msgspec

from recorded import about, survey_record
from warptile.bench.report.record_lookup import RecordLookup
from warptile.bench.report.survey_tables import NO_SURVEY, table

PLANS_ONLY = "python -m warptile.bench.campaign.problem_survey --plans-only"
EARLIER, LATER = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def rows_of(text, name):
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith(f"| {name}")]


def test_without_a_survey_it_says_how_to_make_one():
    assert table(RecordLookup([])) == NO_SURVEY
    alone = survey_record(command=PLANS_ONLY)
    assert table(RecordLookup([alone])) == NO_SURVEY, "what else was tried is not known"


def test_a_survey_of_plans_alone_stands_for_its_gpu_and_not_for_what_was_tried():
    whole = survey_record(date=EARLIER)
    small, large = whole.surveyed
    slower = msgspec.structs.replace(small, cublaslt_us=(2.75, 2.75, 2.75))
    alone = survey_record(date=LATER, command=PLANS_ONLY)
    alone = msgspec.structs.replace(alone, surveyed=(slower, large))
    text = table(RecordLookup([whole, alone]))
    assert [row[1:5] for row in rows_of(text, "all")] == [["1", "1.000", "1.091", "0.0 %"]], (
        "rounds of the other are far apart"
    )
    gpu = whole.environment.gpu
    assert rows_of(text, gpu) == [[f"{gpu}, {LATER[:10]}", "1", "0.500", "100.0 %", "0.50"]]
    assert whole.id in text
    assert alone.id in text


def test_each_gpu_has_a_row_of_its_newest_survey():
    whole = survey_record(date=EARLIER)
    other = survey_record(date=EARLIER, environment=about(gpu="NVIDIA H20")["environment"])
    rows = rows_of(table(RecordLookup([whole, other])), "NVIDIA")
    assert [row[0] for row in rows] == [f"NVIDIA H20, {EARLIER[:10]}", f"{whole.environment.gpu}, {EARLIER[:10]}"]
