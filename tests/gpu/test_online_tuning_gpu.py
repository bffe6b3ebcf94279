"""WARPTILE_AUTOTUNE=on on a real GPU: results are right while configurations are tried, and one is settled on."""

import json
import threading
import time
from itertools import islice

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from warptile import api
from warptile.arrays.operands import arrange
from warptile.gpu import driver
from warptile.planning.accumulation_order import same_bits
from warptile.runtime import execute, online_tuning, trials
from warptile.runtime.trials import Trials
from warptile.verify.reference import error_ratio, is_correct, reference

SIZE = 1024, 1536, 2048
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


def assert_product(d, a, b):
    ratio = error_ratio(d, reference(arrange(a, b).problem, a, b))
    assert is_correct(ratio), ratio


@pytest.mark.parametrize("size", [SIZE, (64, 1024, 8192), (1000, 520, 776), (130, 96, 331)], ids=str)
@pytest.mark.parametrize("mode", ["on", "on,any"])
def test_results_are_right_while_tuning_and_one_configuration_is_settled_on(size, mode, monkeypatch, tuned_here):
    monkeypatch.setenv("WARPTILE_AUTOTUNE", mode)
    a, b, d, host_a, host_b, tuning = begun(*size)
    planned, results = d.numpy(), []

    def look():
        results.append(d.numpy())
        d.fill(0xFF)

    calls_until_settled(a, b, d, tuning, look)
    for each in results:
        assert_product(each, host_a, host_b)
        assert mode == "on,any" or each.tobytes() == planned.tobytes(), "equal bits"
    tried = tuning._trials.tried
    if len(tried) == 1:
        return
    assert all(trial.alive and len(trial.samples_ms) == trials.SAMPLES for trial in tried)
    print(size, mode, [round(trial.time_ms * 1e3, 1) for trial in tried], "us, settled on", tuning._best)
    [table] = tuned_here.rglob("*.jsonl")
    *_, winner = map(json.loads, table.read_text().splitlines())
    assert winner["winner"]
    assert winner["online"]
    assert winner["config"] == dict(tried[tuning._best].plan.config)
    wt.matmul(a, b, out=d)
    assert_product(d.numpy(), host_a, host_b)
    plan = wt.plan(a, b, out=d).plan
    assert dict(plan.config) == winner["config"]
    assert "measured in a running program" in plan.origin


def test_a_later_process_takes_it_at_once(monkeypatch):
    a, b, d, host_a, host_b, tuning = begun(*SIZE)
    calls_until_settled(a, b, d, tuning)
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
        assert all(trial.samples_ms for trial in tuning._trials.tried)
        assert_product(d.numpy(), host_a, host_b)


def test_threads_and_streams_at_once():
    a, b, _, host_a, host_b, tuning = begun(*SIZE)
    wrong = []

    def work(number):
        try:
            with driver.Stream() as stream:
                d = OnGpu(np.zeros(SIZE[:2], np.float16), stream.handle)
                for _ in range(50):
                    d.memory.fill(0xFF, stream.handle)
                    wt.matmul(a, b, out=d)
                    stream.synchronize()
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
    """Printed, with ``-s``: the host's microseconds of a timed call and of a settled one."""
    a, b, d, *_, tuning = begun(256, 256, 256)

    def microseconds(calls):
        start = time.perf_counter()
        for _ in range(calls):
            wt.matmul(a, b, out=d)
        return (time.perf_counter() - start) * 1e6 / calls

    timed = microseconds(trials.SAMPLES * len(tuning._trials.tried))
    calls_until_settled(a, b, d, tuning)
    microseconds(100)
    driver.synchronize()
    settled = microseconds(500)
    print(f"timed {timed:.1f} us, settled {settled:.1f} us")
    assert timed < settled + 200


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


@pytest.mark.parametrize("size", [(384, 520, 1024), (96, 72, 4096), (200, 136, 331)], ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_configurations_of_equal_bits_have_equal_bits(name, size, monkeypatch):
    """What is held to the emulator in tests/cpu/planning/test_accumulation_order.py, of real kernels."""
    monkeypatch.setattr(trials, "MOST_TRIALS", 24)
    dtype, options = TYPES[name]
    m, n, k = size
    a, b = drawn(m, k).astype(dtype), drawn(k, n, seed=1).astype(dtype)
    c = (drawn(m, n, seed=2).astype(dtype),) if "beta" in options else ()
    planned = wt.plan(a, b, *c, backend="gpu", **options).plan
    if planned.rung.name != "wgmma-final":
        pytest.skip(f"{planned.rung.name} takes this")
    found = Trials(planned)
    found.add_others(any_order=True)
    expected = wt.matmul(a, b, *c, backend="gpu", **options)
    compared = 0
    for trial in islice(found.tried, 1, None):
        if same_bits(planned, trial.plan):
            d = wt.matmul(a, b, *c, backend="gpu", rung="wgmma-final", config=dict(trial.plan.config), **options)
            assert d.tobytes() == expected.tobytes(), trial.plan.config
            compared += 1
    print(name, size, compared, "of", len(found.tried) - 1)
