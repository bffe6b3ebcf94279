"""The suite of how fast the emulator is: its kernels are right, its records and tables hold what was measured."""

import json

import pytest

from recorded import emulator_record
from warptile.bench.emulator_suite import emulator_rounds
from warptile.bench.emulator_suite.emulated_kernels import emulated_kernel, names
from warptile.bench.protocol.emulator_rates import COMPILED, INTERPRETED
from warptile.bench.protocol.records import EmulatorRecord, decode
from warptile.bench.report.emulator_tables import NO_TIMES, table
from warptile.bench.report.record_lookup import RecordLookup
from warptile.cli.main import USAGE, run


@pytest.mark.parametrize("name", names())
def test_every_kernel_is_right(name):
    kernel = emulated_kernel(name)
    assert kernel.expected
    assert kernel.run(frozenset()).counters["warp_instructions"] > 10_000


def test_rates_and_speedups():
    (group,) = emulator_record().groups
    assert group.rate(INTERPRETED, checks=True) == pytest.approx(22e6 / 0.44)
    assert group.rate(COMPILED, checks=False) == pytest.approx(22e6 / 0.0275)
    assert group.speedup(checks=True) == pytest.approx(4)
    assert group.speedup(checks=False) == pytest.approx(8)


def test_the_command_writes_a_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(emulator_rounds, "BRIEF_ROUNDS", 1)
    saved = tmp_path / "rates.json"
    words = ["bench", "--suite", "emulator", "--only", "histogram", "--brief", "--json", "--save", str(saved)]
    assert run(words) == 0
    record = decode(saved.read_bytes(), "it")
    assert isinstance(record, EmulatorRecord)
    assert json.loads(capsys.readouterr().out)["command"] == record.command
    assert record.id.startswith("emulator-cpu-")
    assert record.environment.processor
    (group,) = record.groups
    assert group.kernel == "histogram"
    assert {(each.way, each.checks) for each in group.times} == {
        (way, checks) for way in (INTERPRETED, COMPILED) for checks in (True, False)
    }
    assert all(each.median_s > 0 for each in group.times)


def test_a_kernel_that_is_not_in_the_suite(capsys):
    assert run(["bench", "--suite", "emulator", "--only", "histogramm"]) == USAGE
    assert "histogram" in capsys.readouterr().err


def test_the_table_has_a_row_for_each_kernel():
    text = table(RecordLookup([emulator_record()]))
    assert "| softmax | 50.0 | 200.0 | 4.0 | 100.0 | 800.0 | 8.0 |" in text
    assert "emulator-cpu-20261120T120000" in text
    assert table(RecordLookup([])) == NO_TIMES
