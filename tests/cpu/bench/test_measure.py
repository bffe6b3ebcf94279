"""The protocol of a comparison, with runners whose time is known."""

import pytest

from warptile.bench.protocol.interleaving import SWEEP, compare
from warptile.gpu.timing import take_turns
from warptile.runtime.device_product import GRAPH_MS, MOST_OF_GRAPH, estimate_ms, long_graph


class Runner:
    """Takes ``one_ms`` a launch, the first one ``load_ms`` longer; writes down what it is asked for."""

    method = "events"

    def __init__(self, one_ms, load_ms=0.0, log=None, name=""):
        self.one_ms, self.load_ms, self.log, self.name = one_ms, load_ms, [] if log is None else log, name
        self.launches = 0

    def run(self, launches):
        extra, self.load_ms = self.load_ms, 0.0
        self.log.append(self.name)
        self.launches += launches
        return self.one_ms * launches + extra, launches


def test_the_first_launch_of_a_quick_kernel_does_not_count():
    assert estimate_ms(Runner(2.0, load_ms=30.0)) == pytest.approx(2.0)


def test_a_slow_kernel_is_launched_once_to_estimate_it():
    runner = Runner(4000.0)
    assert (estimate_ms(runner), runner.launches) == (4000.0, 1)


class Graph:
    """Launches of ``one_ms``; each replay of ``unit`` of them begins ``gap_ms`` after the one before."""

    method = "graph"

    def __init__(self, one_ms, gap_ms, unit):
        self.one_ms, self.gap_ms, self.unit = one_ms, gap_ms, unit

    def run(self, launches):
        replays = -(-launches // self.unit)
        return replays * (self.gap_ms + self.unit * self.one_ms), replays * self.unit


@pytest.mark.parametrize("looked_like_ms", [2.0, 0.1, 0.012, 0.003])
def test_the_time_between_replays_is_not_measured(looked_like_ms):
    graph, one_ms = long_graph(lambda launches: Graph(0.003, 0.02, launches), looked_like_ms)
    assert graph.unit * graph.one_ms >= 0.4 * GRAPH_MS
    assert one_ms == pytest.approx(0.003, rel=0.06)


def test_graphs_have_a_most_number_of_launches():
    graph, _ = long_graph(lambda launches: Graph(1e-5, 0.0, launches), 0.01)
    assert graph.unit == MOST_OF_GRAPH


def test_rounds_interleave_the_baseline_first():
    log = []
    found = compare(Runner(150.0, log=log, name="c"), 150.0, Runner(100.0, log=log, name="b"), 100.0)
    assert len(found.rounds) == SWEEP.rounds
    # One batch of each to warm up; then 400 ms of each a round: four launches of 100 ms, three of 150 ms.
    assert "".join(log) == "bc" + "bbbbccc" * 3
    assert all((r.time_ms, r.baseline_ms) == (pytest.approx(150.0), pytest.approx(100.0)) for r in found.rounds)
    assert (found.note, found.launches, found.baseline_launches) == (None, 9, 12)


def test_a_kernel_too_slow_for_its_rounds_gets_fewer_and_says_so():
    slow = Runner(7000.0)
    found = compare(slow, 7000.0, Runner(100.0), 100.0, cap_ms=20_000)
    assert (len(found.rounds), slow.launches) == (2, 2)
    assert found.note == "2 of 3 rounds: a launch takes 7000 ms"


def test_a_kernel_beyond_the_cap_is_not_run_at_all():
    slow, base = Runner(30_000.0), Runner(100.0)
    found = compare(slow, 30_000.0, base, 100.0, cap_ms=20_000)
    assert found.rounds == ()
    assert found.note == "one launch takes 30.0 s; a cell has 20 s"
    assert slow.launches == base.launches == 0


def test_a_kernel_just_within_the_cap_runs_once():
    assert len(compare(Runner(15_000.0), 15_000.0, Runner(1.0), 1.0, cap_ms=20_000, turns=take_turns).rounds) == 1
