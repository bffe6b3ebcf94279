"""Workspaces and copies on a real GPU: kept for each stream, found where they were by graphs, left zero.

Also a program: ``PYTHONPATH=src python tests/gpu/test_workspaces_gpu.py`` runs every test without pytest.
"""

import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from toy_rung import TOY, toy_problem, toy_source
from warptile.arrays import array_view
from warptile.device import usual
from warptile.gpu import driver
from warptile.gpu.workspaces import Workspaces, of_stream
from warptile.launch.workspace import Workspace
from warptile.planning.plan import Plan
from warptile.runtime import execute
from warptile.runtime.execute import GpuBackend

SMALL = (Workspace("sums", 1000), Workspace("flags", 64, zero=True))
LARGE = (Workspace("sums", 100_000), Workspace("more", 77), Workspace("flags", 4096, zero=True))


@contextmanager
def capture_of_whole_process(stream):
    """As torch captures: calls of any thread that could disturb the capture are errors. Binds a list for the graph."""
    cuda = driver._cuda()
    handle = cuda.CUstream(stream)
    driver.check(cuda.cuStreamBeginCapture(handle, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL), "begin")
    made = []
    try:
        yield made
    finally:
        graph = driver.check(cuda.cuStreamEndCapture(handle), "end")
    made.append(driver.Graph(driver.check(cuda.cuGraphInstantiate(graph, 0), "instantiate")))


@contextmanager
def toy_sources():
    """The toy rung's text in place of a file of the package."""
    real = execute.translation_unit
    execute.translation_unit = toy_source
    try:
        yield
    finally:
        execute.translation_unit = real


def toy_plan(problem, arch):
    config = TOY.default_config(problem)
    return Plan(problem, TOY, config, device=usual(arch))


class Matrix:
    """A batch of matrices in GPU memory, as `warptile.arrays.array_view` sees an array of another library."""

    def __init__(self, array, stream):
        self.memory = driver.Allocation.from_array(array)
        self.shape, self.dtype, self.stream = array.shape, array.dtype, stream
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (self.memory.address, False), "version": 3,
            "stream": stream or 1,
        }  # fmt: skip

    def host(self):
        return self.memory.to_host(np.empty(self.shape, self.dtype))


def toy_operands(batch, stream=0, seed=3):
    given = toy_problem()
    draw = np.random.default_rng(seed).integers
    a = draw(-4, 5, (batch, given.m, given.k)).astype(np.float16)
    b = draw(-4, 5, (given.k, given.n)).astype(np.float16)
    d = np.full((batch, given.m, given.n), np.nan, np.float32)
    matrices = {"A": Matrix(a, stream), "B": Matrix(b, stream), "D": Matrix(d, stream)}
    views = {name: array_view.view(each, name.lower()) for name, each in matrices.items()}
    views["B"] = views["B"].broadcast((batch, given.k, given.n))
    return matrices, views, a.astype(np.float32) @ b.astype(np.float32)


def test_memory_is_kept_and_zeros_are_zeros():
    driver.enter()
    kept = Workspaces()
    first = kept.pointers(SMALL)
    assert kept.pointers(SMALL) == first
    assert all(address % 256 == 0 for address in first.values())
    grown = kept.pointers(LARGE)
    assert grown["more"] - grown["sums"] == 100_096
    assert kept.leftovers() == 0
    assert kept.pointers(SMALL)["flags"] == grown["flags"]
    kept.close()


def test_what_is_left_behind_is_counted_and_cleared():
    driver.enter()
    kept = Workspaces()
    kept.pointers(SMALL)
    kept._zeros.newest.from_host(np.ones(3, np.uint8), offset_bytes=8)
    assert kept.leftovers() == 3
    assert kept.leftovers() == 0
    kept.close()


def test_memory_can_be_made_while_a_stream_is_captured():
    driver.enter()
    kept = Workspaces()
    with driver.Stream() as stream:
        with capture_of_whole_process(stream.handle) as made:
            pointers = kept.pointers(LARGE)
        assert len(made) == 1
    assert pointers["flags"]
    assert kept.leftovers() == 0
    kept.close()


def test_copies_and_workspaces_serve_a_batch():
    with toy_sources():
        backend = GpuBackend()
        plan = toy_plan(toy_problem(), backend.arch)
        matrices, views, expected = toy_operands(5)
        for _ in range(3):
            backend.run(plan, views, [(index,) for index in range(5)], 1.0, 0.0)
        assert np.array_equal(matrices["D"].host(), expected)
        assert of_stream(backend.info.ordinal, views["D"].stream).leftovers() == 0


def test_a_captured_product_is_replayed_after_its_workspaces_have_grown():
    with toy_sources(), driver.Stream() as stream:
        backend = GpuBackend()
        plan = toy_plan(toy_problem(), backend.arch)
        matrices, views, expected = toy_operands(2, stream.handle)
        backend.run(plan, views, [(0,), (1,)], 1.0, 0.0)
        with capture_of_whole_process(stream.handle) as made:
            backend.run(plan, views, [(0,), (1,)], 1.0, 0.0)
        of_stream(backend.info.ordinal, stream.handle).pointers(LARGE)
        stream.synchronize()
        matrices["D"].memory.fill(0xFF)
        for _ in range(3):
            made[0].launch(stream.handle)
        stream.synchronize()
        assert np.array_equal(matrices["D"].host(), expected)


def test_threads_share_a_stream():
    with toy_sources():
        backend = GpuBackend()
        plan = toy_plan(toy_problem(), backend.arch)
        own = [toy_operands(3, seed=seed) for seed in range(4)]

        def work(views):
            for _ in range(20):
                backend.run(plan, views, [(0,), (1,), (2,)], 1.0, 0.0)

        threads = [threading.Thread(target=work, args=(views,)) for _, views, _ in own]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        for matrices, _, expected in own:
            assert np.array_equal(matrices["D"].host(), expected)


def main():
    """Run every test; 1 if one failed."""
    import traceback

    failures = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                print(f"{name}: ok", flush=True)
            except Exception:
                failures += 1
                print(f"{name}: FAILED\n{traceback.format_exc()}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
