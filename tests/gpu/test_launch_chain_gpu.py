"""Products that depend on each other, launched in a row: each may start while the one before ends, and none too early.

D of one product is A of the next, and two matrices take turns: whoever starts too early reads a part of A that is not
there yet, or writes over what is still being read. Chains are held, bit for bit, to the same launches with a wait for
the GPU behind each.

Also a program: ``PYTHONPATH=src python tests/gpu/test_launch_chain_gpu.py`` runs every chain without pytest.
"""

import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from products import WGMMA_PLAIN
from warptile.arrays.array_view import numpy_dtype
from warptile.arrays.sparse import sparsify
from warptile.dtypes import DTYPES
from warptile.gpu import driver, loader
from warptile.gpu.workspaces import Workspaces
from warptile.planning.plan import Plan, make_plan
from warptile.problem import Problem
from warptile.runtime.execute import compiled, copy_launches
from warptile.verify.reference import random_operand

LINKS = 24
SHARED_DEPTH = ({"STREAM": 1, "SMS": 132}, {"SPLITS": 2, "SMS": 132})


@dataclass(frozen=True)
class Case:
    """How a chain is made.

    Attributes:
        rows, depth: extents of the matrices that take turns; the other operand is a square one.
        configs: changes of a plain configuration, of which each product takes the next one; the rung's own for {}.
        copies: operands that are copied before each product.
        filled: the driver fills D in front of each product, so that none follows another kernel.
        forked: two streams take launches in turn, each after an event behind the other's.
        sparse: a sparse square matrix times the one that takes turns, on the right.
    """

    rows: int
    depth: int
    configs: tuple[dict[str, int], ...] = ({},)
    copies: int = 0
    filled: bool = False
    forked: bool = False
    sparse: bool = False

    @property
    def problem(self) -> Problem:
        element, wide = DTYPES["bfloat16"], DTYPES["float32"]
        if not self.sparse:
            return Problem.dense(
                self.rows, self.depth, self.depth, element, out=element, accumulator=wide, b_major="col"
            )
        problem = Problem.dense(self.depth, self.rows, self.depth, element, out=element, accumulator=wide)
        return replace(problem, a=replace(problem.a, sparse=True, leading_dimension=self.depth // 2))

    def plans(self, arch: str) -> list[Plan]:
        rung = "wgmma-sparse" if self.sparse else "wgmma-final"
        full = [{**WGMMA_PLAIN, "BK": 64, **config} if config else None for config in self.configs]
        return [make_plan(self.problem, rung=rung, config=config, arch=arch) for config in full]


CASES = {
    "usual": Case(300, 512),
    "small tiles": Case(64, 256, ({"BM": 64, "BN": 32, "CONSUMERS": 1, "BK": 128},)),
    "several kernels": Case(300, 512, ({}, *SHARED_DEPTH, {"CM": 2}, {"BM": 64, "PINGPONG": 1})),
    "workspaces": Case(300, 1024, SHARED_DEPTH),
    "copies": Case(300, 511, copies=2),
    "copies and workspaces": Case(300, 1021, SHARED_DEPTH, copies=2),
    "behind fills": Case(300, 512, filled=True),
    "two streams": Case(300, 512, forked=True),
    "two streams with copies": Case(300, 511, copies=2, forked=True),
    "sparse": Case(304, 512, sparse=True),
}


class Chain:
    """A chain of products on the GPU: its launches, between the two matrices that take turns."""

    def __init__(self, case: Case) -> None:
        driver.enter()
        element, draw = DTYPES["bfloat16"], np.random.default_rng(case.depth)
        self.start = random_operand((case.rows, case.depth), element, draw)
        drawn = random_operand((case.depth, case.depth), element, draw).astype(np.float32)
        square = (drawn / np.sqrt(case.depth)).astype(numpy_dtype(element))  # products stay as large as they are
        self.turns = [driver.Allocation.from_array(self.start) for _ in range(2)]
        fixed = {"A": sparsify(square).values, "E": sparsify(square).packed()} if case.sparse else {"B": square}
        self.fixed = {name: driver.Allocation.from_array(array) for name, array in fixed.items()}
        self.workspaces = Workspaces()
        self.kernels, self.links = {}, []
        self.other = driver.Stream() if case.forked else None
        plans = case.plans(driver.device_info().arch)
        assert {len(plan.kernel.copies) for plan in plans} == {case.copies}
        for number in range(LINKS):
            plan = plans[number % len(plans)]
            source, target = self.turns[number % 2], self.turns[1 - number % 2]
            if case.filled:
                self.links.append(partial(fill, target))
            pointers = {name: memory.address for name, memory in self.fixed.items()}
            pointers |= {"B" if case.sparse else "A": source.address, "D": target.address}
            kernel = compiled(plan)
            for each, spec in (*copy_launches(plan), (kernel, plan.launch(kernel.entry))):
                assert spec.overlaps_previous
                if each.key not in self.kernels:
                    self.kernels[each.key] = loader.load(each)
                beside = self.workspaces.pointers(plan.kernel.workspaces)
                self.links.append(self.kernels[each.key].prepare(spec, pointers | beside).launch)

        self.events = [driver.Event() for _ in self.links]
        assert len(self.links) % 2 == 0  # two streams meet in the first one

    def reset(self):
        for memory in self.turns:
            memory.from_host(self.start)

    def launch(self, stream, *, wait=False):
        if self.other is None or wait:
            for link in self.links:
                link(stream)
                if wait:
                    driver.synchronize()
            return
        turns = (stream, self.other.handle)
        for number, (link, event) in enumerate(zip(self.links, self.events, strict=True)):
            link(turns[number % 2])
            event.record(turns[number % 2])
            wait_for(event, turns[1 - number % 2])

    def result(self):
        driver.synchronize()
        assert self.workspaces.leftovers() == 0
        return [memory.to_host(np.empty_like(self.start)).view(np.uint16) for memory in self.turns]

    def close(self):
        for each in (*self.kernels.values(), *self.turns, *self.fixed.values(), self.workspaces, *self.events):
            each.close()
        if self.other is not None:
            self.other.close()


def fill(memory: driver.Allocation, stream: int) -> None:
    cuda = driver._cuda()
    answer = cuda.cuMemsetD8Async(cuda.CUdeviceptr(memory.address), 0xFF, memory.size_bytes, cuda.CUstream(stream))
    driver.check(answer, "filling")


def wait_for(event: driver.Event, stream: int) -> None:
    cuda = driver._cuda()
    driver.check(cuda.cuStreamWaitEvent(cuda.CUstream(stream), cuda.CUevent(event.handle), 0), "waiting for an event")


def check(name):
    chain = Chain(CASES[name])
    with driver.Stream() as stream:
        chain.reset()
        chain.launch(stream.handle, wait=True)
        expected = chain.result()
        for each in expected:
            assert np.isfinite(each.view(numpy_dtype(DTYPES["bfloat16"])).astype(np.float32)).all()
            assert len(np.unique(each)) > 100
        for _ in range(20):
            chain.reset()
            chain.launch(stream.handle)
            for got, want in zip(chain.result(), expected, strict=True):
                assert np.array_equal(got, want), f"{name}: {np.count_nonzero(got != want)} elements differ"
        with driver.Graph.capture(stream.handle) as made:
            chain.launch(stream.handle)
        for _ in range(20):
            chain.reset()
            made[0].launch(stream.handle)
            for got, want in zip(chain.result(), expected, strict=True):
                assert np.array_equal(got, want), f"{name}, graph: {np.count_nonzero(got != want)} elements differ"
        made[0].close()
    chain.close()


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_chain_of_launches_is_as_good_as_one_launch_at_a_time(name):
    if driver.device_info().capability != (9, 0):
        pytest.skip("needs a GPU of sm_90")
    check(name)


def main():
    """Check every chain; 1 if one was wrong."""
    failures = 0
    for name in CASES:
        try:
            check(name)
            print(f"{name}: ok", flush=True)
        except Exception as error:
            failures += 1
            print(f"{name}: FAILED: {type(error).__name__}: {error}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
