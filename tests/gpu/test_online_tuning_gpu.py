"""WARPTILE_AUTOTUNE=on on a real GPU: results are right while configurations are tried, and one is settled on."""

import json
import threading
import time
from dataclasses import replace
from itertools import islice
from statistics import median

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from warptile import api
from warptile.arrays.operands import arrange
from warptile.gpu import driver
from warptile.planning.accumulation_order import same_bits
from warptile.runtime import execute, online_tuning, trials
from warptile.runtime.trials import LOOKS, Trial, Trials
from warptile.verify.reference import error_ratio, is_correct, reference

SIZE = 1024, 1536, 2048
SPLIT = 64, 1024, 8192
"""A problem whose planned kernel splits K: no other candidate has the same bits."""

HOPPER = "sm_90a"


class OnGpu:
    """A row-major matrix in GPU memory, described by ``__cuda_array_interface__`` alone."""

    def __init__(self, array, stream=None):
        self.array = array
        self.memory = driver.Allocation.from_array(array)
        self.stream = stream

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.array.shape, "typestr": self.array.dtype.str, "data": (self.memory.address, False),
            "version": 3, "strides": None, "stream": self.stream,
        }  # fmt: skip

    def fill(self, byte):
        self.memory.fill(byte)

    def numpy(self):
        return self.memory.to_host(np.empty_like(self.array))


@pytest.fixture(autouse=True)
def tuned_here(monkeypatch, tmp_path):
    """Tuning is on, with a table of its own that is empty; kernels come from the usual cache."""
    if driver.device_info().arch != HOPPER:
        pytest.skip("wgmma-final runs on sm_90a")
    monkeypatch.setenv("WARPTILE_AUTOTUNE", "on")
    monkeypatch.setattr(online_tuning.tuned_table, "_folder", lambda chosen: tmp_path)
    monkeypatch.setattr(api, "_calls", {})
    monkeypatch.delenv("WARPTILE_BACKEND", raising=False)
    execute._planned.cache_clear()
    online_tuning.forget()
    yield tmp_path
    online_tuning.forget()
    execute._planned.cache_clear()


def drawn(*shape, dtype=np.float16, seed=0):
    generator = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return generator.integers(0, 9, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def begun(m, n, k, dtype=np.float16, stream=None):
    """A, B and D on the GPU, A and B on the host, and the tuning of their problem with all kernels compiled."""
    a, b = drawn(m, k, dtype=dtype), drawn(k, n, dtype=dtype, seed=1)
    on_gpu = OnGpu(a), OnGpu(b), OnGpu(np.zeros((m, n), dtype), stream)
    wt.matmul(*on_gpu[:2], out=on_gpu[2])
    [tuning] = online_tuning._under_way.values()
    tuning._compiled.result(300)
    return *on_gpu, a, b, tuning


def calls_until_settled(a, b, d, tuning, each=lambda: None):
    deadline = time.monotonic() + 60
    while not tuning._settled.done():
        assert time.monotonic() < deadline
        wt.matmul(a, b, out=d)
        each()


def described(found):
    """What was measured and decided, for those who run this with ``-s``."""
    times = ", ".join(
        f"{found.time_ms(number) * 1e3:.1f} ({len(found.tried[number].samples)}, "
        f"{sum(each.queued for each in found.tried[number].samples)} queued)"
        for number in found.measured
    )
    said = "certain" if found.certain else "uncertain"
    return f"{times} us; {said} after {found.round} rounds: {found.best}"


def assert_product(d, a, b):
    ratio = error_ratio(d, reference(arrange(a, b).problem, a, b))
    assert is_correct(ratio), ratio


@pytest.mark.parametrize(
    ("mode", "size"),
    [
        ("on", SIZE), ("on", (64, 8192, 512)), ("on", (1000, 520, 776)), ("on", (1400, 1200, 331)), ("on,any", SIZE),
        ("on,any", SPLIT), ("on,any", (1400, 1200, 331)),
    ],
    ids=str,
)  # fmt: skip
def test_results_are_right_while_tuning_and_one_configuration_is_settled_on(mode, size, monkeypatch, tuned_here):
    monkeypatch.setenv("WARPTILE_AUTOTUNE", mode)
    a, b, d, host_a, host_b, tuning = begun(*size)
    results = {d.numpy().tobytes(): d.numpy()}

    def look():
        found = d.numpy()
        results.setdefault(found.tobytes(), found)
        d.fill(0xFF)

    calls_until_settled(a, b, d, tuning, look)
    for each in results.values():
        assert_product(each, host_a, host_b)
    assert mode == "on,any" or len(results) == 1, "equal bits"
    found = tuning._trials
    assert len(found.tried) > 1, "this shows something only where there is a choice"
    assert all(trial.alive and LOOKS[0] <= len(trial.samples) <= LOOKS[-1] for trial in found.tried)
    print(mode, size, described(found))
    wt.matmul(a, b, out=d)
    assert_product(d.numpy(), host_a, host_b)
    settled = found.tried[found.best].plan
    if not found.certain:
        assert found.round == LOOKS[-1]
        assert settled is found.tried[0].plan
        assert not any(tuned_here.rglob("*.jsonl")), "nothing uncertain is written"
        return
    [table] = tuned_here.rglob("*.jsonl")
    *_, winner = map(json.loads, table.read_text().splitlines())
    assert winner["winner"]
    assert winner["online"]
    assert winner["config"] == dict(settled.config)
    plan = wt.plan(a, b, out=d).plan
    assert dict(plan.config) == winner["config"]
    assert "measured in a running program" in plan.origin


def test_a_split_of_k_leaves_nothing_to_try(tuned_here):
    a, b, d, host_a, host_b, tuning = begun(*SPLIT)
    assert tuning._trials.tried[0].plan.config["SPLITS"] > 1
    calls_until_settled(a, b, d, tuning)
    assert len(tuning._trials.tried) == 1
    assert_product(d.numpy(), host_a, host_b)
    assert not any(tuned_here.rglob("*.jsonl"))


@pytest.mark.parametrize("waiting", [True, False], ids=["idle stream", "busy stream"])
def test_equal_configurations_are_found_equal(waiting, monkeypatch):
    """Copies of the planned configuration do not replace it: what differs between their samples is noise."""
    monkeypatch.setattr(
        Trials, "add_others", lambda self, any_order: self.tried.extend(Trial(self.tried[0].plan) for _ in range(5))
    )
    a, b, d, *_, tuning = begun(*((256, 256, 256) if waiting else (4096, 4096, 4096)))
    calls_until_settled(a, b, d, tuning, driver.synchronize if waiting else lambda: None)
    found = tuning._trials
    print("idle stream" if waiting else "busy stream", described(found))
    assert found.best == 0
    queued = [each.queued for trial in found.tried for each in trial.samples]
    assert sum(queued) < 0.1 * len(queued) if waiting else sum(queued) > 0.5 * len(queued)


def test_a_later_process_takes_it_at_once(monkeypatch):
    a, b, d, host_a, host_b, tuning = begun(4096, 4096, 4096)
    calls_until_settled(a, b, d, tuning)
    print(described(tuning._trials))
    assert tuning._trials.certain, "large products differ by more than their samples vary"
    monkeypatch.setattr(api, "_calls", {})
    online_tuning.forget()
    execute._planned.cache_clear()
    for mode in ("on", "cached"):
        monkeypatch.setenv("WARPTILE_AUTOTUNE", mode)
        wt.matmul(a, b, out=d)
        assert_product(d.numpy(), host_a, host_b)
        assert online_tuning._under_way == {}


def test_graphs_are_captured_while_tuning():
    with driver.Stream() as stream:
        a, b, d, host_a, host_b, tuning = begun(*SIZE, stream=stream.handle)
        for _ in range(4):
            wt.matmul(a, b, out=d)
        launches = [trial.launches for trial in tuning._trials.tried]
        with driver.Graph.capture(stream.handle) as made:
            for _ in range(3):
                wt.matmul(a, b, out=d)
        assert [trial.launches for trial in tuning._trials.tried] == launches, "captured calls are not timed"
        for _ in range(3):
            d.fill(0xFF)
            made[0].launch(stream.handle)
            stream.synchronize()
            assert_product(d.numpy(), host_a, host_b)
        calls_until_settled(a, b, d, tuning)
        d.fill(0xFF)
        made[0].launch(stream.handle)
        stream.synchronize()
        assert_product(d.numpy(), host_a, host_b)


def test_another_streams_capture_is_not_disturbed():
    """As torch captures: calls of any thread that could disturb the capture are errors."""
    cuda = driver._cuda()
    with driver.Stream() as stream, driver.Stream() as other:
        a, b, d, host_a, host_b, tuning = begun(*SIZE, stream=stream.handle)
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
        wt.matmul(a, b, out=d)
        driver.check(cuda.cuStreamBeginCapture(cuda.CUstream(other.handle), mode), "begin")
        for _ in range(40):
            wt.matmul(a, b, out=d)
        thread = threading.Thread(target=lambda: [wt.matmul(a, b, out=d) for _ in range(40)])
        thread.start()
        thread.join()
        graph = driver.check(cuda.cuStreamEndCapture(cuda.CUstream(other.handle)), "end")
        driver.check(cuda.cuGraphDestroy(graph), "drop")
        calls_until_settled(a, b, d, tuning)
        assert all(trial.samples for trial in tuning._trials.tried)
        assert_product(d.numpy(), host_a, host_b)


def test_threads_and_streams_at_once():
    a, b, _, host_a, host_b, tuning = begun(*SIZE)
    wrong = []

    def work(number):
        try:
            with driver.Stream() as stream:
                d = OnGpu(np.zeros(SIZE[:2], np.float16), stream.handle)
                for calls in range(1000):
                    if calls >= 50 and tuning._settled.done():
                        break
                    d.memory.fill(0xFF, stream.handle)
                    wt.matmul(a, b, out=d)
                    stream.synchronize()
                    if calls % 10 == 0:
                        assert_product(d.numpy(), host_a, host_b)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
    assert tuning._settled.done()


def test_what_a_call_costs():
    """The host's time of a timed call beside that of a settled one, on an idle GPU. First calls are apart: they bind
    every configuration, make events and load code."""
    a, b, d, *_, tuning = begun(256, 256, 256)

    def microseconds():
        driver.synchronize()
        start = time.perf_counter()
        wt.matmul(a, b, out=d)
        return (time.perf_counter() - start) * 1e6

    size = len(tuning._trials.tried)
    first = [microseconds() for _ in range(size)]
    timed = [microseconds() for _ in range(size * (LOOKS[0] - 1))]
    assert tuning._trials.round == LOOKS[0] - 1, "nothing is decided in these calls"
    calls_until_settled(a, b, d, tuning, driver.synchronize)
    settled = [microseconds() for _ in range(200)][100:]
    print(f"first {sum(first):.0f} us together, timed {median(timed):.1f} us each, settled {median(settled):.1f} us")
    assert median(timed) < 10 * median(settled)


TYPES = {
    "bfloat16": (ml_dtypes.bfloat16, {}),
    "float16 accumulators": (np.float16, {"accumulate": "float16"}),
    "float32 results": (np.float16, {"out_dtype": "float32", "alpha": 1.3}),
    "tf32": (np.float32, {"precision": "tf32"}),
    "two-level": (ml_dtypes.float8_e4m3fn, {"out_dtype": "float32"}),
    "float8 fast": (ml_dtypes.float8_e4m3fn, {"out_dtype": "float32", "accumulate": "float32_fast"}),
    "int8": (np.int8, {}),
    "with C": (np.float16, {"beta": 0.7, "alpha": 1.3}),
    "with C of 32 bits": (np.float32, {"precision": "tf32", "beta": 0.7, "alpha": 1.3}),
}


def products(name, size):
    """Operands of a type, the options of its calls, and the plan; skips what wgmma-final does not take."""
    dtype, options = TYPES[name]
    m, n, k = size
    operands = [drawn(m, k).astype(dtype), drawn(k, n, seed=1).astype(dtype)]
    if "beta" in options:
        operands.append(drawn(m, n, seed=2).astype(dtype))
    planned = wt.plan(*operands, backend="gpu", **options).plan
    assert planned.rung.name == "wgmma-final"
    return operands, options, planned


def assert_equal_bits(operands, options, planned, others):
    expected, *results = (
        wt.matmul(*operands, backend="gpu", rung="wgmma-final", config=dict(plan.config), **options)
        for plan in (planned, *others)
    )
    for plan, d in zip(others, results, strict=True):
        assert d.tobytes() == expected.tobytes(), plan.config


@pytest.mark.parametrize("size", [(384, 520, 1024), (640, 1032, 520), (1400, 1200, 331)], ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_configurations_of_equal_bits_have_equal_bits(name, size, monkeypatch):
    """What is held to the emulator in tests/cpu/planning/test_accumulation_order.py, of real kernels."""
    monkeypatch.setattr(trials, "MOST_TRIALS", 24)
    operands, options, planned = products(name, size)
    assert planned.config["SPLITS"] == 1, "few others have the bits of a split K"
    found = Trials(planned)
    found.add_others(any_order=True)
    alike = [trial.plan for trial in islice(found.tried, 1, None) if same_bits(planned, trial.plan)]
    assert len(alike) >= 2
    assert_equal_bits(operands, options, planned, alike)


@pytest.mark.parametrize("name", [each for each in TYPES if each != "int8"])
def test_kernels_that_split_k_alike_have_equal_bits(name):
    """Stages and the order of tiles do not change the sums of a split K."""
    operands, options, planned = products(name, (96, 72, 4096))
    config = dict(planned.config)
    if config["SPLITS"] == 1:
        config |= {"SPLITS": 2, "STREAM": 0, "SMS": planned.device.sms}
        planned = replace(planned, config=config)
        assert planned.rung.illegal(planned.problem, config, planned.device) is None
    changes = ({"STAGES": config["STAGES"] - 1}, {"GROUP": 2 * config["GROUP"]})
    others = [replace(planned, config=config | change) for change in changes]
    legal = [each for each in others if planned.rung.illegal(planned.problem, each.config, planned.device) is None]
    assert legal
    assert all(same_bits(planned, each) for each in legal)
    assert_equal_bits(operands, options, planned, legal)
