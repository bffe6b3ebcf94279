"""The arithmetic and the order of measurements, on a stand-in for the GPU's clock."""

import pytest

from warptile.errors import DeviceError, UnsupportedError
from warptile.gpu import driver, timing
from warptile.gpu.timing import COOL, SUSTAINED, Candidate, Ratio, Schedule, Timing


class Runner:
    """Takes ``per_launch_ms`` for each launch, as a list of successive values if given one, and keeps a diary."""

    method = "events"

    def __init__(self, name, diary, per_launch_ms, unit=1):
        self.name, self.diary, self.unit = name, diary, unit
        self.values = per_launch_ms

    def run(self, launches):
        launches = -(-launches // self.unit) * self.unit
        per_launch_ms = self.values.pop(0) if isinstance(self.values, list) else self.values
        self.diary.append((self.name, launches, per_launch_ms * launches))
        return per_launch_ms * launches, launches


def _spent_ms(diary, name):
    return sum(elapsed_ms for who, _, elapsed_ms in diary if who == name)


def test_candidates_take_turns_in_every_round_the_baseline_first():
    diary = []
    runners = {"baseline": Runner("baseline", diary, 2.0), "ours": Runner("ours", diary, 1.0)}
    measured = timing.take_turns(runners, {"baseline": 2.0, "ours": 1.0}, Schedule("sustained", rounds=3, turn_ms=50))
    order = [name for i, (name, *_) in enumerate(diary) if i == 0 or diary[i - 1][0] != name]
    assert order == ["baseline", "ours"] * 4
    assert measured["baseline"][0] == (2.0, 2.0, 2.0)
    assert measured["ours"][0] == (1.0, 1.0, 1.0)
    # 1000 ms of warm-up is shared; then three turns of 50 ms.
    assert _spent_ms(diary, "baseline") == pytest.approx(500 + 150, abs=20)
    assert measured["ours"][1] == 150


def test_the_sustained_regime_is_half_a_second_a_turn_after_a_warm_up():
    assert (SUSTAINED.regime, SUSTAINED.turn_ms, SUSTAINED.pause_s) == ("sustained", 500.0, 0.0)
    assert SUSTAINED.rounds >= 3
    assert SUSTAINED.warm_up_ms > 0


def test_the_cool_regime_pauses_before_each_burst_and_takes_their_median():
    diary, pauses = [], []
    # Each burst: one launch to wake the chip, then batches of measured ones.
    values = [9.0, 1.0, 9.0, 5.0, 9.0, 2.0]
    schedule = Schedule("cool", rounds=1, turn_ms=10, bursts=3, pause_s=0.2, warm_up_ms=0)
    measured = timing.take_turns({"it": Runner("it", diary, values)}, {"it": 1.0}, schedule, pauses.append)
    assert pauses == [0.2, 0.2, 0.2]
    assert measured["it"][0] == (2.0,)
    assert COOL.pause_s > 0
    assert COOL.turn_ms < 50


def test_a_wrong_first_estimate_is_corrected_after_one_batch():
    diary = []
    timing.take_turns({"it": Runner("it", diary, 0.01)}, {"it": 5.0}, Schedule("sustained", 1, 100.0, warm_up_ms=0))
    assert diary[0][1] == 2
    assert diary[1][1] == 1000


def test_a_slow_kernel_runs_at_least_once_a_turn():
    diary = []
    measured = timing.take_turns(
        {"it": Runner("it", diary, 4000.0)}, {"it": 4000.0}, Schedule("sustained", 2, 500.0, warm_up_ms=0)
    )
    assert measured["it"] == ((4000.0, 4000.0), 2)


def test_whole_graphs_count_their_launches():
    measured = timing.take_turns(
        {"it": Runner("it", [], 0.004, unit=250)}, {"it": 0.004}, Schedule("sustained", 1, 20.0, warm_up_ms=0)
    )
    assert measured["it"][0] == (pytest.approx(0.004),)
    assert measured["it"][1] % 250 == 0


@pytest.mark.parametrize("elapsed_ms", [0.0, -1.0, float("nan")])
def test_a_clock_that_stands_still_is_an_error_not_an_endless_loop(elapsed_ms):
    with pytest.raises(DeviceError, match="GPU's clock"):
        timing.take_turns({"it": Runner("it", [], elapsed_ms)}, {"it": 1.0}, SUSTAINED)


def _timing(*rounds_ms, regime="sustained"):
    return Timing(regime, "events", 1, 100, rounds_ms, 5.0)


def test_a_timing_speaks_of_its_median_and_spread():
    measured = _timing(1.0, 1.2, 1.1)
    assert measured.median_ms == 1.1
    assert measured.spread == pytest.approx(0.2 / 1.1)
    assert measured.tflops(2 * 4096**3) == pytest.approx(2 * 4096**3 / 1.1e-3 / 1e12)


def test_ratios_are_of_the_same_round():
    assert timing.speed_ratio(_timing(1.0, 2.0, 4.0), _timing(1.1, 2.0, 6.0)) == Ratio(1.1, 1.0, 1.5)


@pytest.mark.parametrize("baseline", [_timing(1.0), _timing(1.0, 1.0, 1.0, regime="cool")])
def test_ratios_of_different_measurements_are_refused(baseline):
    with pytest.raises(UnsupportedError, match="one call of compare"):
        timing.speed_ratio(_timing(1.0, 1.0, 1.0), baseline)


@pytest.mark.parametrize(
    ("bytes_per_set", "sets"),
    # The H200's L2 holds 60 MiB, so 240 MiB must pass before a set is used again.
    [(240 * 2**20, 1), (240 * 2**20 - 1, 2), (100 * 2**20, 3), (6 * 2**20, 40), (1, 4096), (0, 4096)],
)
def test_operand_sets_are_rotated_beyond_l2(bytes_per_set, sets):
    assert timing.operand_sets(bytes_per_set, 60 * 2**20) == sets


@pytest.mark.parametrize(
    ("estimate_ms", "host_us", "graph"),
    [(0.019, 1.0, True), (0.021, 1.0, False), (0.1, 60.0, True), (0.1, 40.0, False), (5.0, 30.0, False)],
)
def test_short_and_host_bound_kernels_are_replayed_from_a_graph(estimate_ms, host_us, graph):
    assert timing.wants_graph(estimate_ms, host_us) is graph


@pytest.mark.parametrize("changes", [{"rounds": 0}, {"turn_ms": 0.0}, {"turn_ms": float("nan")}, {"bursts": 0}])
def test_a_schedule_that_measures_nothing_is_refused(changes):
    with pytest.raises(UnsupportedError, match="must be positive"):
        Schedule("sustained", **changes)


@pytest.mark.parametrize("sets", [0, -1, 4097])
def test_a_candidate_needs_operand_sets(sets):
    with pytest.raises(UnsupportedError, match=f"got {sets}"):
        Candidate(lambda operand_set, stream: None, sets)


class Event:
    """Stands in for a driver event: one millisecond passes from each to the next."""

    count = 0

    def record(self, stream):
        Event.count += 1
        self.at = Event.count

    def synchronize(self):
        pass

    def elapsed_ms(self, later):
        return later.at - self.at


def test_events_rotate_through_the_sets_across_batches(monkeypatch):
    monkeypatch.setattr(driver, "Event", Event)
    used = []
    runner = timing.EventRunner(Candidate(lambda operand_set, stream: used.append((operand_set, stream)), 3), 9)
    assert runner.run(4) == (1, 4)
    assert runner.run(3) == (1, 3)
    assert used == [(0, 9), (1, 9), (2, 9), (0, 9), (1, 9), (2, 9), (0, 9)]


def test_a_graph_holds_whole_rotations_and_is_replayed_whole(monkeypatch):
    import contextlib

    replays, used = [], []

    class Graph:
        @staticmethod
        @contextlib.contextmanager
        def capture(stream):
            made = []
            yield made
            made.append(Graph())

        def launch(self, stream):
            replays.append(stream)

    monkeypatch.setattr(driver, "Event", Event)
    monkeypatch.setattr(driver, "Graph", Graph)
    runner = timing.GraphRunner(Candidate(lambda operand_set, stream: used.append(operand_set), 3), 9, launches=4)
    assert used == [0, 1, 2, 0, 1, 2]
    assert replays == [9]
    assert runner.run(13)[1] == 18
    assert replays == [9] * 4


@pytest.mark.parametrize(
    ("method", "name", "expected"),
    [
        (None, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "events"),
        (None, "CUDA_ERROR_LAUNCH_FAILED", DeviceError),
        ("graph", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", DeviceError),
    ],
)
def test_only_what_cannot_be_captured_falls_back_to_events(monkeypatch, method, name, expected):
    def fails(*_):
        raise DeviceError("recording", name)

    monkeypatch.setattr(timing, "GraphRunner", fails)
    looker = Runner("it", [], 0.005)
    arguments = (Candidate(lambda operand_set, stream: None), 9, looker, 0.005, 1.0, method)
    if expected == "events":
        assert timing._runner_for(*arguments) is looker
    else:
        with pytest.raises(expected):
            timing._runner_for(*arguments)


def test_wrong_calls_are_refused_before_any_gpu_is_needed():
    with pytest.raises(UnsupportedError, match="'events', 'graph' or None"):
        timing.compare({}, method="stopwatch")
    with pytest.raises(UnsupportedError, match="default stream"):
        timing.compare({}, method="graph", stream=0)
