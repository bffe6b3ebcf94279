"""The suite of how long plans take: its problems, records and tables."""

import json

import pytest

from recorded import about
from warptile.bench.protocol import planning_rounds
from warptile.bench.protocol.environment import describe_processor
from warptile.bench.protocol.planning_times import PlanningTimes
from warptile.bench.protocol.records import PlanningRecord, decode
from warptile.bench.report.planning_tables import NO_TIMES, table
from warptile.bench.report.record_lookup import RecordLookup
from warptile.cli.main import USAGE, run
from warptile.rungs.wgmma.tiles import is_aligned

TIMES = PlanningTimes(kind="bf16", first_us=30_000.0, each_us=tuple(float(us) for us in range(200, 301)))


def test_medians_and_tenths():
    assert TIMES.median_us == 250
    assert TIMES.quantile_us(1) == pytest.approx(209.2)
    assert TIMES.quantile_us(9) == pytest.approx(290.8)


@pytest.mark.parametrize("kind", planning_rounds.KINDS)
def test_kinds_are_what_they_are_called(kind):
    problem = planning_rounds.KINDS[kind](128, 256, 512)
    assert problem.a.dtype.name.startswith(
        {"bf16": "bfloat16", "f16": "float16", "tf32": "tfloat32", "e4m3": "float8_e4m3"}.get(
            kind.split(",")[0].split()[0], kind
        )
    )
    assert is_aligned(problem) == ("odd" not in kind)
    assert problem.b.major == ("row" if "along N" in kind else "col")


def test_every_problem_is_planned_for_the_first_time(monkeypatch):
    seen = []
    monkeypatch.setattr(planning_rounds, "_timed_us", lambda problem: seen.append(problem) or 1.0)
    found = planning_rounds.measure("f16", problems=20)
    assert len(found.each_us) == 20
    assert len(set(seen)) == len(seen) == 21 + planning_rounds.WARM_UP


def test_the_command_writes_a_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(planning_rounds, "BRIEF_PROBLEMS", 5)
    saved = tmp_path / "planning.json"
    words = ["bench", "--suite", "planning", "--only", "tf32", "--brief", "--json", "--save", str(saved)]
    assert run(words) == 0
    record = decode(saved.read_bytes(), "it")
    assert isinstance(record, PlanningRecord)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["command"] == record.command
    assert f"{saved}: saved\n" in printed.err  # a report has no section for it
    assert f"records/{record.id}.json" in printed.err
    assert record.id.startswith("planning-cpu-")
    (group,) = record.groups
    assert group.kind == "tf32"
    assert len(group.each_us) == 5
    assert min(group.each_us) > 0
    assert group.first_us > 0


def test_a_kind_that_is_not_in_the_suite(capsys):
    assert run(["bench", "--suite", "planning", "--only", "tf23"]) == USAGE
    assert "tf32" in capsys.readouterr().err


def test_the_table_has_a_row_for_each_kind():
    record = PlanningRecord(groups=(TIMES,), **{**about(), "environment": describe_processor()})
    text = table(RecordLookup([record]))
    assert "| bf16 | 250 | 209 | 291 | 30000 |" in text
    assert "planning-cpu-20261120T120000" in text
    assert table(RecordLookup([])) == NO_TIMES
