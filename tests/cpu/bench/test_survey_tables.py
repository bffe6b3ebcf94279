"""The table of plans of random problems, from made-up surveys."""

import msgspec
import pytest

from recorded import about, survey_record
from warptile.bench.report.record_lookup import KINDS_OF_SURVEYS, OF_ALL, RecordLookup
from warptile.bench.report.survey_tables import NO_SURVEY, table

COMMAND = "python -m warptile.bench.campaign.problem_survey"
PLANS_ONLY = f"{COMMAND} --plans-only"
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
    alone = msgspec.structs.replace(alone, surveyed=(slower, large), git_hash="another")
    text = table(RecordLookup([whole, alone]))
    assert [row[1:5] for row in rows_of(text, "all")] == [["1", "1.000", "1.091", "0.0 %"]], (
        "rounds of the other are far apart"
    )
    gpu = whole.environment.gpu
    assert rows_of(text, gpu) == [[gpu, LATER[:10], OF_ALL, "1", "0.500", "100.0 %", "0.50"]]
    assert whole.id in text
    assert alone.id in text


def test_surveys_of_one_commit_are_one_row():
    whole = survey_record(date=EARLIER)
    small, large = whole.surveyed
    slower = msgspec.structs.replace(small, cublaslt_us=(2.75, 2.75, 2.75))
    alone = msgspec.structs.replace(survey_record(date=LATER, command=PLANS_ONLY), surveyed=(slower, large))
    before = msgspec.structs.replace(whole, git_hash="another")
    lookup = RecordLookup([before, whole, alone])
    gpu = whole.environment.gpu
    assert [row[:6] for row in rows_of(table(lookup), gpu)] == [[gpu, LATER[:10], OF_ALL, "2", "0.739", "50.0 %"]]


def test_each_gpu_has_a_row_of_its_newest_survey():
    whole = survey_record(date=EARLIER)
    other = survey_record(date=EARLIER, environment=about(gpu="NVIDIA H20")["environment"])
    rows = rows_of(table(RecordLookup([whole, other])), "NVIDIA")
    assert [row[0] for row in rows] == ["NVIDIA H20", whole.environment.gpu]


@pytest.mark.parametrize("option", KINDS_OF_SURVEYS)
def test_a_survey_of_one_kind_has_rows_of_its_own(option):
    whole, own = survey_record(date=EARLIER), survey_record(date=LATER, command=f"{COMMAND} {option}")
    text, kind = table(RecordLookup([whole, own])), KINDS_OF_SURVEYS[option]
    assert [row[1] for row in rows_of(text, kind)] == [row[1] for row in rows_of(text, "all")] == ["1"]
    rows = rows_of(text, whole.environment.gpu)
    assert [row[1:3] for row in rows] == [[EARLIER[:10], OF_ALL], [LATER[:10], kind]]
    assert own.id in text


def test_surveys_that_only_models_are_fitted_to_have_none():
    whole, other = survey_record(date=EARLIER), survey_record(date=LATER, command=f"{COMMAND} --misaligned")
    assert table(RecordLookup([whole, other])) == table(RecordLookup([whole]))
