"""What a call costs the host: rounds that alternate, ratios within a round, and the command that prints them."""

import json

import pytest
from click.testing import CliRunner

from warptile.bench.protocol import call_cost
from warptile.bench.protocol.call_cost import Participant, measure
from warptile.cli.main import run, warptile_command
from warptile.gpu import driver


@pytest.fixture
def clock(monkeypatch):
    """Seconds that only calls move forward."""
    now = [0.0]
    monkeypatch.setattr(call_cost.time, "perf_counter", lambda: now[0])
    return now


def participants(clock, order):
    """Two, of 2 and 3 microseconds, that note when they are called."""

    def call(name, cost_us):
        def run():
            order.append(name)
            clock[0] += cost_us * 1e-6

        return run

    return [
        Participant("theirs", "torch", call("theirs", 2.0)),
        Participant("ours", "torch", call("ours", 3.0), "theirs"),
    ]


def test_rounds_alternate_and_each_is_compared_with_its_own(clock):
    order, waits = [], []
    found = measure(participants(clock, order), lambda: waits.append(len(order)), rounds=3, calls=4)
    assert order[:4] == ["theirs"] * 2 + ["ours"] * 2, "both are called before anything is timed"
    timed = [order[4 + 4 * start] for start in range(6)]
    assert timed == ["theirs", "ours", "ours", "theirs", "theirs", "ours"]
    assert waits == [4, 8, 12, 16, 20, 24, 28], "the GPU is waited for before and behind each"
    theirs, ours = found
    assert theirs.rounds_us == pytest.approx((2.0,) * 3)
    assert (theirs.median_ratio, ours.median_us) == (None, pytest.approx(3.0))
    assert ours.ratios == pytest.approx((1.5,) * 3)


@pytest.fixture
def gpu(monkeypatch, clock):
    monkeypatch.setattr(driver, "enter", lambda ordinal=None: 0)
    monkeypatch.setattr(driver, "synchronize", lambda: None)
    monkeypatch.setattr(call_cost, "participants_of", lambda size: iter(participants(clock, [])))


def test_the_command_prints_a_table_or_json(gpu):
    shown = CliRunner().invoke(warptile_command, ["bench", "--suite", "calls", "--brief"], env={"COLUMNS": "80"})
    assert shown.exit_code == 0, shown.output
    assert "64 x 64 x 64" in shown.output
    assert any(line.split()[:2] == ["ours", "3.00"] and "1.50" in line for line in shown.output.splitlines())
    said = CliRunner().invoke(
        warptile_command, ["bench", "--suite", "calls", "--brief", "--json", "--size", "32", "--size", "48"]
    )
    document = json.loads(said.stdout)
    assert document["schema"] == "warptile.calls/1"
    assert [each["size"] for each in document["sizes"]] == [32, 48]
    ours = document["sizes"][0]["costs"][1]
    assert ours["name"] == "ours"
    assert ours["ratios"] == pytest.approx([1.5] * call_cost.BRIEF_ROUNDS)
    assert {"gpu", "driver", "python"} <= document["environment"].keys()


@pytest.mark.skipif(driver.available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys):
    assert run(["bench", "--suite", "calls"]) == 3
    assert "NoDeviceError" in capsys.readouterr().err
