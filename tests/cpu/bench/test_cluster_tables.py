"""The table of clusters that share loads, from made-up surveys."""

import math

import msgspec

from recorded import calls_record, survey_record
from warptile.bench.protocol.measurements import TimedConfig
from warptile.bench.report.cluster_tables import NO_SURVEY, table
from warptile.bench.report.record_lookup import RecordLookup
from warptile.rungs.wgmma.tile_shapes import TUNABLES

COMMAND = "python -m warptile.bench.campaign.problem_survey --straddling"


def timed(base, rounds_us, **changes):
    """A configuration like ``base`` with some tunables changed, and its times."""
    return TimedConfig(tuple({**dict(zip(TUNABLES, base, strict=True)), **changes}.values()), rounds_us)


def survey(*problems, command=COMMAND):
    """A record whose problems have these configurations and times of cuBLASLt; each is ``(times, us)``,
    times by CTAs of a cluster along M and N, splits, and rows of a tile where these are not 128."""
    like, _ = survey_record().surveyed
    found = [
        msgspec.structs.replace(
            like, cublaslt_us=(library_us,) * 3,
            tried=tuple(timed(like.planned, rounds, CM=cm, CN=cn, SPLITS=splits, BM=(*rows, 128)[0], SWAP=0)
                        for (cm, cn, splits, *rows), rounds in times.items()),
        )
        for times, library_us in problems
    ]  # fmt: skip
    return msgspec.structs.replace(survey_record(command=command), surveyed=tuple(found))


def rows(text):
    return [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]


def test_each_kind_counts_where_it_is_fastest_and_adds_to_those_above():
    first = {(1, 1, 1): (10.0,) * 3, (2, 1, 1): (8.0,) * 3, (1, 4, 1): (9.0,) * 3, (2, 2, 1): (7.9,) * 3}
    second = {(1, 1, 4): (10.0,) * 3, (1, 2, 2): (5.0,) * 3, (1, 2, 1): (2.0, 4.0, 6.0), (4, 1, 1, 64): (4.0,) * 3}
    text = table(RecordLookup([survey((first, 8.0), (second, 9.0))]))
    assert rows(text) == [
        ["none", "2", "0", "0", f"{math.sqrt(0.8 * 0.9):.3f}", "100.0 %"],
        ["two CTAs", "1", "0", "0", f"{math.sqrt(1.0 * 0.9):.3f}", "50.0 %"],
        ["four along one axis", "1", "0", "0", f"{math.sqrt(1.0 * 0.9):.3f}", "50.0 %"],
        ["four or eight along both axes", "1", "1", "0", f"{math.sqrt(8 / 7.9 * 0.9):.3f}", "50.0 %"],
        ["two CTAs, and K is split", "1", "0", "0", f"{math.sqrt(8 / 7.9 * 1.8):.3f}", "0.0 %"],
        ["any, of tiles with 64 rows or swapped operands", "1", "1", "1", f"{math.sqrt(8 / 7.9 * 2.25):.3f}", "0.0 %"],
    ]
    assert "survey-h200-" in text


def test_other_surveys_and_problems_without_the_library_do_not_count():
    times = {(1, 1, 1): (10.0,) * 3, (2, 1, 1): (8.0,) * 3}
    other = survey((times, 8.0), command=COMMAND.replace(" --straddling", ""))
    assert table(RecordLookup([other, calls_record()])) == NO_SURVEY
    assert table(RecordLookup([])) == NO_SURVEY
    without = msgspec.structs.replace(survey((times, 8.0)).surveyed[0], cublaslt_us=())
    assert (
        table(RecordLookup([msgspec.structs.replace(survey_record(command=COMMAND), surveyed=(without,))])) == NO_SURVEY
    )
