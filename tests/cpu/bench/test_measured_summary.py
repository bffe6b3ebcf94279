"""The summary of recorded results that ships: made from the newest ladder records, and read without any record."""

import subprocess
import sys

import msgspec
import pytest

from recorded import UNMEASURED, cell, ladder_record
from warptile import ladder, measured
from warptile.bench.protocol.measurements import Round
from warptile.bench.protocol.records import committed
from warptile.bench.protocol.workloads import F16_F16, F16_F32, to_problem
from warptile.bench.report.documents import DocumentTables, check, update
from warptile.bench.report.measured_summary import PATH, summary_of
from warptile.cli.ladder import RECORDED_SIZE, recorded
from warptile.rungs import RUNGS
from warptile.runtime.execute import EmulatorBackend

SIZE = (4096, 4096, 4096)


def of_cells(*cells, date="2026-11-20T12:00:00Z", **changes):
    return msgspec.structs.replace(ladder_record(date), cells=cells, **changes)


@pytest.fixture
def shipped(monkeypatch, tmp_path):
    """Makes a summary of some records the one that ships."""

    def ship(*records):
        file = tmp_path / "measured.json"
        file.write_text(measured.encode(summary_of(records)))
        monkeypatch.setattr(measured, "FILE", file)
        forget()

    def forget():
        measured.summary.cache_clear()
        measured._by_rung_and_problem.cache_clear()

    yield ship
    forget()


def test_a_result_is_of_exactly_this_problem(shipped):
    record = of_cells(cell(rounds=(Round(1.0, 0.5), Round(2.0, 1.5), Round(4.0, 1.0))))
    shipped(record)
    problem = to_problem(F16_F32.key(*SIZE))
    assert measured.find("wmma-final", problem, (SIZE,)) == {
        "m": 4096, "n": 4096, "k": 4096, "time_ms": 2.0, "tflops": 68.719, "of_cublas": 0.5, "of_cublas_low": 0.25,
        "of_cublas_high": 0.75, "cublas_tflops": 137.44, "record": record.id, "gpu": "NVIDIA H200",
        "date": "2026-11-20", "regime": "sustained",
    }  # fmt: skip
    assert measured.find("wmma-final", problem, ((4096, 4096, 4095),)) is None
    assert measured.find("no-such-rung", problem, (SIZE,)) is None
    for other in (F16_F16.key(*SIZE), F16_F32.key(*SIZE, "col")):
        assert measured.find("wmma-final", to_problem(other), (SIZE,)) is None


def test_the_first_size_that_was_measured_counts(shipped):
    shipped(of_cells(cell(time_ms=0.5), cell(size=2048, time_ms=0.125)))
    problem = to_problem(F16_F32.key(*SIZE))
    small = (2048, 2048, 2048)
    assert measured.find("wmma-final", problem, ((1, 2, 3), small, SIZE))["time_ms"] == 0.125
    assert measured.find("wmma-final", problem, (SIZE, small))["time_ms"] == 0.5


def test_the_newest_result_that_has_figures_counts_and_none_at_cool_clocks(shipped):
    new = of_cells(cell(time_ms=0.125), date="2026-11-21T12:00:00Z")
    failed = of_cells(cell(rounds=(), failed="wrong"), date="2026-11-22T12:00:00Z")
    cool = of_cells(cell(time_ms=0.0625), date="2026-11-23T12:00:00Z", regime="cool")
    shipped(of_cells(cell()), new, failed, cool)
    found = measured.find("wmma-final", to_problem(F16_F32.key(*SIZE)), (SIZE,))
    assert (found["time_ms"], found["record"]) == (0.125, new.id)
    assert [source.record for source in measured.summary().sources] == [new.id]


def test_the_summary_that_ships_is_that_of_the_records():
    assert measured.FILE.read_text() == measured.encode(summary_of(committed())), "run: make docs"


def test_the_report_writes_it_and_sees_that_it_is_stale(tmp_path):
    file = tmp_path / PATH
    file.parent.mkdir(parents=True)
    old, new = of_cells(cell()), of_cells(cell(time_ms=0.125), date="2026-11-21T12:00:00Z")
    assert update(tmp_path, DocumentTables([old])) == [file]
    assert check(tmp_path, DocumentTables([old])) == []
    assert check(tmp_path, DocumentTables([old, new])) == [file]


@pytest.mark.parametrize("name", [name for name in RUNGS if name not in UNMEASURED])
def test_every_rung_has_a_recorded_result_for_its_usual_problem(name):
    plan = ladder.plan_for(RUNGS[name], ladder.EMULATED_SIZE, EmulatorBackend("sm_90a"))
    found = recorded(name, plan.problem)
    assert found is not None
    assert (found["m"], found["n"], found["k"]) == RECORDED_SIZE


def test_the_ladder_loads_nothing_that_reads_records():
    program = "import sys, warptile.cli.main, warptile.cli.ladder; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "warptile.measured" in loaded
    assert "warptile.bench" not in loaded
