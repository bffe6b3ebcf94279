"""WARPTILE_AUTOTUNE=on: the first calls of a problem try configurations, and the fastest is settled on."""

import json
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import warptile as wt
from stubbed_gpu import StubbedGpu, stubbed_torch
from warptile import api
from warptile.errors import CompileError, DeviceError
from warptile.planning import tuned_table
from warptile.planning.accumulation_order import same_bits
from warptile.runtime import execute, online_tuning
from warptile.runtime.execute import GpuBackend
from warptile.runtime.online_tuning import tuning_of
from warptile.runtime.trials import LOOKS, MOST_TRIALS, TimedLaunch

SIZE = 4096, 4096, 4096
SPLIT = 64, 1024, 8192
"""A problem whose planned configuration splits K."""


@pytest.fixture
def torch(monkeypatch, tmp_path):
    monkeypatch.setattr(api, "_calls", {})
    monkeypatch.delenv("WARPTILE_BACKEND", raising=False)
    monkeypatch.delenv("WARPTILE_COMPILE", raising=False)
    monkeypatch.setenv("WARPTILE_AUTOTUNE", "on")
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path))
    online_tuning.forget()
    yield stubbed_torch(monkeypatch)
    online_tuning.forget()


@pytest.fixture
def gpu(monkeypatch, torch):
    execute._planned.cache_clear()
    return StubbedGpu().install(monkeypatch)


def operands(torch, m, n, k, kind="bfloat16"):
    kind = getattr(torch, kind)
    return torch.empty((m, k), kind), torch.empty((k, n), kind)


def under_way():
    [found] = online_tuning._under_way.values()
    return found


def begun(torch, size=SIZE):
    """Operands, and the tuning of their problem, whose first call was made and whose kernels are compiled."""
    a, b = operands(torch, *size)
    wt.matmul(a, b)
    found = under_way()
    found._compiled.result(30)
    return a, b, found


def call(gpu, a, b, **options):
    """One call; what it launched."""
    before = len(gpu.launches)
    wt.matmul(a, b, **options)
    *_, launched = gpu.launches[before:]  # behind a pass over the operands, if there is one
    return launched.entry, launched.grid, launched.shared


def launch_of(gpu, plan):
    """What `call` gives for a plan."""
    kernel = execute.compiled(plan)
    return kernel.entry, plan.kernel.grid, plan.kernel.dynamic_shared_bytes


def fastest(gpu, launches, which):
    """Let one of several launches be faster than all others."""
    gpu.takes_ms = lambda launched: 0.5 if (launched.entry, launched.grid, launched.shared) == launches[which] else 1.0


def settled(gpu, a, b, tuning):
    """Calls until the outcome is known; what each launched."""
    made = []
    while not tuning._settled.done():
        made.append(call(gpu, a, b))
        assert len(made) <= MOST_TRIALS * (LOOKS[-1] + 1) + 1
    return made


def rounds(made, launches, number):
    """The first ``number`` rounds of calls, each of which launched all ``launches``, and the calls after them."""
    size = len(launches)
    orders = [made[size * each : size * (each + 1)] for each in range(number)]
    assert all(sorted(each) == sorted(launches) for each in orders), "each round is one launch of each"
    return orders, made[size * number :]


def lines(tmp_path):
    [table] = (tmp_path / "tuned").iterdir()
    return [json.loads(line) for line in table.read_text().splitlines()]


def test_configurations_are_tried_in_turns_and_the_fastest_is_taken_and_written(gpu, torch, tmp_path):
    a, b, tuning = begun(torch)
    launches = [launch_of(gpu, trial.plan) for trial in tuning._trials.tried]
    assert len(set(launches)) == len(launches) == MOST_TRIALS
    fastest(gpu, launches, 3)
    made = settled(gpu, a, b, tuning)
    orders, rest = rounds(made, launches, 1 + LOOKS[0])
    assert len({tuple(each) for each in orders}) > 1, "in random order"
    _, [last] = rounds(rest, [launches[0], launches[3]], LOOKS[1] - LOOKS[0])
    assert last == launches[0], "the call that settles is not timed"
    assert gpu.events <= 2, "events are used again"
    events, compiled = len(gpu.recorded), gpu.compiled
    for _ in range(3):
        assert call(gpu, a, b) == launches[3]
    assert (len(gpu.recorded), gpu.compiled) == (events, compiled)
    assert online_tuning._under_way == {}
    *others, winner = lines(tmp_path)
    assert winner["winner"]
    assert winner["config"] == dict(tuning._trials.tried[3].plan.config)
    assert [each["time_ms"] for each in others] == [1.0, 1.0, 1.0, 0.5, 1.0, 1.0]
    assert all(each["online"] for each in (*others, winner))
    counts = [len(each["rounds_ms"]) for each in (*others, winner)]
    assert counts == [LOOKS[1], *[LOOKS[0]] * 2, LOOKS[1], *[LOOKS[0]] * 2, LOOKS[1]]


@pytest.mark.parametrize("mode", ["on", "cached"])
def test_later_processes_take_what_was_found(gpu, torch, monkeypatch, mode):
    a, b, tuning = begun(torch)
    launches = [launch_of(gpu, trial.plan) for trial in tuning._trials.tried]
    fastest(gpu, launches, 2)
    settled(gpu, a, b, tuning)
    monkeypatch.setattr(api, "_calls", {})
    online_tuning.forget()
    execute._planned.cache_clear()
    monkeypatch.setenv("WARPTILE_AUTOTUNE", mode)
    events = len(gpu.recorded)
    assert [call(gpu, a, b) for _ in range(3)] == [launches[2]] * 3
    assert len(gpu.recorded) == events
    assert online_tuning._under_way == {}
    origin = wt.plan(a, b).plan.origin
    assert origin == "tuned for this problem on this NVIDIA H200, measured in a running program (WARPTILE_AUTOTUNE)"


def test_the_planned_one_stays_where_nothing_is_clearly_faster(gpu, torch, tmp_path):
    a, b, tuning = begun(torch)
    launches = [launch_of(gpu, trial.plan) for trial in tuning._trials.tried]
    gpu.takes_ms = lambda launched: 1.0 if launched.entry == launches[0][0] else 0.98
    settled(gpu, a, b, tuning)
    assert call(gpu, a, b) == launches[0]
    assert lines(tmp_path)[-1]["config"] == dict(tuning._trials.tried[0].plan.config)


def test_what_is_uncertain_is_not_written_and_the_planned_one_stays(gpu, torch, tmp_path, caplog):
    caplog.set_level("INFO", logger="warptile")
    a, b, tuning = begun(torch)
    launches = [launch_of(gpu, trial.plan) for trial in tuning._trials.tried]
    chances = random.Random(0)
    gpu.takes_ms = lambda launched: 1.0 + chances.uniform(-0.3, 0.3)
    made = settled(gpu, a, b, tuning)
    assert tuning._trials.round == LOOKS[-1]
    assert made.count(launches[0]) == LOOKS[-1] + 2
    assert call(gpu, a, b) == launches[0]
    assert not (tmp_path / "tuned").exists()
    assert "nothing is certain after 80 rounds" in caplog.text


def test_what_a_timed_call_asks_of_the_driver(gpu, torch):
    a, b, tuning = begun(torch)
    for _ in range(2 * MOST_TRIALS):
        call(gpu, a, b)
    asked, recorded, made = [], len(gpu.recorded), gpu.events
    gpu.passed = lambda: asked.append(None) is None
    calls = MOST_TRIALS * (LOOKS[0] - 1)
    for _ in range(calls):
        call(gpu, a, b)
    assert tuning._trials.round == LOOKS[0]
    assert len(gpu.recorded) - recorded == 2 * calls, "two events"
    assert len(asked) == 2 * calls, "whether the stream was busy, and whether the last call has ended"
    assert gpu.events == made


def test_samples_tell_whether_the_host_is_in_them(gpu, torch):
    a, b, tuning = begun(torch)
    trials = tuning._trials
    for _ in range(MOST_TRIALS):  # round 0
        call(gpu, a, b)
    gpu.passed = lambda: False
    call(gpu, a, b)
    gpu.passed = lambda: True
    call(gpu, a, b)
    call(gpu, a, b)
    assert sorted(each.queued for trial in trials.tried for each in trial.samples) == [False, True]


def test_calls_go_on_with_the_planned_kernel_while_others_compile(gpu, torch):
    go_on = threading.Event()
    seen = []

    def wait(source):
        seen.append(threading.current_thread().name)
        assert len(seen) == 1 or go_on.wait(30)

    gpu.compiling = wait
    a, b = operands(torch, *SIZE)
    first = call(gpu, a, b)
    tuning = under_way()
    assert {call(gpu, a, b) for _ in range(20)} == {first}
    assert gpu.recorded == []
    go_on.set()
    tuning._compiled.result(30)
    assert set(seen[1:]) == {"warptile-tune"}
    assert len(settled(gpu, a, b, tuning)) == MOST_TRIALS * (1 + LOOKS[0]) + 1


def test_compiling_begins_when_the_call_is_launched(gpu, torch):
    seen = []
    gpu.compiling = lambda source: seen.append(len(gpu.launches))
    _, _, tuning = begun(torch)
    assert tuning._compiled.done()
    assert seen[0] == 0
    assert set(seen[1:]) == {1}


def test_nobody_waits_for_events(gpu, torch):
    a, b, tuning = begun(torch)
    gpu.passed = lambda: False
    launches = [launch_of(gpu, trial.plan) for trial in tuning._trials.tried]
    made = [call(gpu, a, b) for _ in range(MOST_TRIALS * (1 + LOOKS[0]) + 5)]
    _, rest = rounds(made, launches, 1 + LOOKS[0])
    assert rest == [launches[0]] * 5, "nothing is decided before times are there"
    gpu.passed = lambda: True
    call(gpu, a, b)
    assert tuning._settled.done()


def test_events_out_of_order_do_not_count(gpu, torch):
    a, b, tuning = begun(torch)
    launches = [launch_of(gpu, trial.plan) for trial in tuning._trials.tried]
    gpu.takes_ms = lambda launched: -1.0 if launched.entry == launches[1][0] else 1.0
    made = settled(gpu, a, b, tuning)
    assert made.count(launches[1]) == 1 + LOOKS[0]
    assert tuning._trials.tried[1].samples == []
    assert not tuning._trials.tried[1].alive
    assert call(gpu, a, b) == launches[0]


def test_a_captured_call_is_not_timed_and_takes_what_is_known(gpu, torch):
    a, b, tuning = begun(torch)
    launches = [launch_of(gpu, trial.plan) for trial in tuning._trials.tried]
    fastest(gpu, launches, 1)
    gpu.capturing = True
    assert {call(gpu, a, b) for _ in range(3)} == {launches[0]}
    gpu.capturing = False
    assert gpu.recorded == []
    assert len({call(gpu, a, b) for _ in range(3)}) == 3, "capture does not end it"
    gpu.capturing = True
    assert call(gpu, a, b) == launches[0]
    gpu.capturing = False
    settled(gpu, a, b, tuning)
    gpu.capturing = True
    assert call(gpu, a, b) == launches[1]


def test_a_first_call_that_is_captured_runs_the_planned_kernel(gpu, torch):
    gpu.capturing = True
    a, b, tuning = begun(torch)
    planned = launch_of(gpu, tuning._trials.tried[0].plan)
    assert {call(gpu, a, b) for _ in range(3)} == {planned}
    gpu.capturing = False
    settled(gpu, a, b, tuning)


def test_what_is_asked_for_is_left_alone(gpu, torch):
    a, b = operands(torch, *SIZE)
    config = dict(wt.plan(a, b).plan.config)
    wt.matmul(a, b, rung="wgmma-final")
    wt.matmul(a, b, rung="wgmma-final", config=config)
    wt.matmul(a, b, max_sms=100)
    wt.plan(a, b)(a, b)
    double = torch.empty((64, 64), torch.float64)  # by simt-gemv, of whose order of additions nothing is known
    wt.matmul(double, double)
    stacked = torch.empty((2, 3, 40, 63), torch.bfloat16), torch.empty((3, 63, 24), torch.bfloat16)  # two launches
    assert wt.plan(*stacked).apart is not None
    wt.matmul(*stacked)
    import numpy as np

    host = np.ones((64, 64), np.float16)
    wt.matmul(host, host)
    assert online_tuning._under_way == {}
    assert gpu.recorded == []


@pytest.mark.parametrize("mode", ["off", "cached", ""])
def test_other_modes_try_nothing(gpu, torch, monkeypatch, mode):
    monkeypatch.setenv("WARPTILE_AUTOTUNE", mode)
    wt.matmul(*operands(torch, *SIZE))
    assert online_tuning._under_way == {}


@pytest.mark.parametrize("size", [SIZE, SPLIT])
def test_only_configurations_of_equal_bits_are_tried_unless_any_is_asked_for(gpu, torch, monkeypatch, size):
    found = {}
    for mode in ("on", "on,any"):
        monkeypatch.setenv("WARPTILE_AUTOTUNE", mode)
        online_tuning.forget()
        _, _, tuning = begun(torch, size)
        planned, *others = (trial.plan for trial in tuning._trials.tried)
        found[mode] = [same_bits(planned, other) for other in others]
        assert len(others) < MOST_TRIALS
        assert planned.config not in [other.config for other in others]
    assert all(found["on"])
    if size == SPLIT:
        assert not all(found["on,any"])


@pytest.mark.parametrize(
    ("rung", "size", "kind", "mode"),
    [
        ("mma-specialized", (1000, 1000, 1000), "float64", "on"),
        ("mma-unaligned", (200, 136, 331), "bfloat16", "on"),
        ("mma-split-k", (16, 4096, 4096), "float64", "on,any"),
        ("wgmma-bf16x6", (64, 1024, 4096), "float32", "on,any"),
        ("wgmma-split", (1024, 1024, 1024), "float32", "on,any"),
    ],
)
def test_other_rungs_are_tuned_and_later_plans_take_what_was_found(gpu, torch, monkeypatch, rung, size, kind, mode):
    monkeypatch.setenv("WARPTILE_AUTOTUNE", mode)
    a, b = operands(torch, *size, kind)
    assert wt.plan(a, b).plan.rung.name == rung
    wt.matmul(a, b)
    tuning = under_way()
    tuning._compiled.result(60)
    plans = [trial.plan for trial in tuning._trials.tried]
    assert 1 < len(plans) <= MOST_TRIALS
    assert {plan.rung.name for plan in plans} == {rung}
    assert all(same_bits(plans[0], plan) for plan in plans) == (mode == "on")
    launches = [launch_of(gpu, plan) for plan in plans]
    fastest(gpu, launches, 1)
    settled(gpu, a, b, tuning)
    assert call(gpu, a, b) == launches[1]
    monkeypatch.setattr(api, "_calls", {})
    online_tuning.forget()
    execute._planned.cache_clear()
    monkeypatch.setenv("WARPTILE_AUTOTUNE", "cached")
    assert wt.plan(a, b).plan.config == plans[1].config
    assert call(gpu, a, b) == launches[1]


def test_a_kernel_that_does_not_compile_is_not_tried(gpu, torch):
    compiled = []

    def refuse(source):
        compiled.append(source)
        if len(compiled) in (2, 4):
            raise CompileError("registers spill")

    gpu.compiling = refuse
    a, b, tuning = begun(torch)
    alive = [trial for trial in tuning._trials.tried if trial.alive]
    assert len(alive) == len(tuning._trials.tried) - 2
    made = settled(gpu, a, b, tuning)
    rounds(made, [launch_of(gpu, trial.plan) for trial in alive], 1 + LOOKS[0])


def test_a_launch_that_the_driver_refuses_is_dropped_and_the_planned_one_launched(gpu, torch):
    a, b, tuning = begun(torch)
    launches = [launch_of(gpu, trial.plan) for trial in tuning._trials.tried]
    planned = launches[0]
    call(gpu, a, b)
    refused = launches[tuning._trials._order[-1]]
    assert refused != planned
    gpu.status = 1
    before = len(gpu.launches)
    with pytest.raises(DeviceError):
        wt.matmul(a, b)
    first, second = gpu.launches[before:]
    assert (first.entry, second.entry) == (refused[0], planned[0])
    gpu.status = 0
    assert refused not in settled(gpu, a, b, tuning)


def test_an_error_of_the_driver_ends_it(gpu, torch, tmp_path):
    a, b, tuning = begun(torch)
    planned = launch_of(gpu, tuning._trials.tried[0].plan)

    def lost():
        raise DeviceError("asking for an event: CUDA_ERROR_UNKNOWN", "CUDA_ERROR_UNKNOWN")

    call(gpu, a, b)
    gpu.passed = lost
    assert {call(gpu, a, b) for _ in range(3)} == {planned}
    assert tuning._settled.done()
    assert not (tmp_path / "tuned").exists()


def test_a_table_that_cannot_be_written_is_said_once_and_results_count_in_this_process(
    gpu, torch, tmp_path, caplog, monkeypatch
):
    monkeypatch.setenv("WARPTILE_COMPILE", "wait")
    online_tuning._say_not_written.cache_clear()
    (tmp_path / "tuned").write_text("a file where a folder is needed")
    for size in (SIZE, (4096, 4096, 2048)):
        a, b, tuning = begun(torch, size)
        launches = [launch_of(gpu, trial.plan) for trial in tuning._trials.tried]
        fastest(gpu, launches, 1)
        settled(gpu, a, b, tuning)
        events = len(gpu.recorded)
        assert [call(gpu, a, b) for _ in range(3)] == [launches[1]] * 3
        assert len(gpu.recorded) == events
    assert [each.levelname for each in caplog.records].count("WARNING") == 1
    assert "serves this process alone" in caplog.text


def test_several_threads_and_streams(gpu, torch):
    a, b, tuning = begun(torch)
    launches = [launch_of(gpu, trial.plan) for trial in tuning._trials.tried]
    fastest(gpu, launches, 1)
    wrong, made = [], []

    def work(number):
        try:
            for calls in range(10000):
                if calls >= 40 and tuning._settled.done():
                    break
                assert wt.matmul(a, b).shape == (4096, 4096)
                made.append(number)
        except Exception as error:
            wrong.append(error)

    before, interval = len(gpu.launches), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    # A call may find that another thread has just forgotten what it has bound: then it takes the long way.
    assert len(gpu.launches) - before + len(gpu.prepared) == len(made), "each call launches one kernel"
    assert tuning._settled.done()
    assert all(trial.launches <= LOOKS[-1] + 1 for trial in tuning._trials.tried)


def test_events_are_recorded_on_the_stream_of_the_call(gpu, torch):
    a, b, _ = begun(torch)
    gpu.recorded.clear()
    for stream in (0x100, 0x200):
        torch.stream = stream
        call(gpu, a, b)
        assert gpu.launches[-1].stream == stream
    launched = len(gpu.launches)
    assert gpu.recorded == [
        (0x100, launched - 2), (0x100, launched - 1), (0x200, launched - 1), (0x200, launched)
    ]  # fmt: skip


def test_problems_at_a_time_are_bounded(gpu, torch, monkeypatch):
    monkeypatch.setattr(online_tuning, "MOST_PROBLEMS", 2)
    calls = [wt.plan(*operands(torch, size, size, size)) for size in (512, 768, 1024)]

    def tuning(number):
        product = calls[number].call.arranged(*operands(torch, *SIZE), None, None, copy=False)
        return tuning_of(calls[number].plan, product, GpuBackend())

    (_, first), (_, second) = tuning(0), tuning(1)
    assert tuning(2) == (calls[2].plan, None)
    assert tuning(0)[1] is first
    monkeypatch.setattr(online_tuning, "IDLE_S", -1.0)
    assert tuning(2)[1] is not None
    assert second not in online_tuning._under_way.values()


def test_one_that_was_written_by_another_process_ends_it(gpu, torch):
    a, b, tuning = begun(torch)
    tried, tuning._trials.best = tuning._trials.tried, 1
    tried[0].samples, tried[1].samples = [TimedLaunch(1.0, True)], [TimedLaunch(0.5, True)]
    tuning._write()
    assert call(gpu, a, b) == launch_of(gpu, tried[1].plan)
    assert online_tuning._under_way == {}


def test_unknown_modes_are_refused_with_what_is_accepted(gpu, torch, monkeypatch):
    monkeypatch.setenv("WARPTILE_AUTOTUNE", "any")
    with pytest.raises(wt.UnsupportedError, match="it takes off, cached, on or on,any"):
        wt.matmul(*operands(torch, *SIZE))
    assert tuned_table.MODES == ("off", "cached", "on", "on,any")
