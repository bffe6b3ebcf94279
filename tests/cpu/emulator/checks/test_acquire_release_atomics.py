"""Atomics that acquire and release, as of `cuda::atomic_ref`: what they order, and in what time."""

import time

import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator.checks.acquire_release import AcquireReleaseState, MemoryOrder
from warptile.emulator.checks.displaced_accesses import ANYWHERE
from warptile.emulator.checks.vector_clocks import VectorClocks
from warptile.errors import DataRace

LAST_BLOCK_SUMS = """
extern "C" __global__ void sum(int* out, int* parts, int* counter) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = blockIdx.x + 1;
        int before;
        asm volatile("atom.ORDER.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
        last = before == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x < gridDim.x) atomicAdd(out, parts[threadIdx.x]);
}
"""


def sums(order: str) -> int:
    out, parts, counter = np.zeros(1, np.int32), np.zeros(20, np.int32), np.zeros(1, np.int32)
    run_cuda(
        LAST_BLOCK_SUMS.replace("ORDER", order),
        "sum",
        [out, parts, counter],
        grid=20,
        outputs=dict.fromkeys(range(3), True),
    )
    total: int = out[0].item()
    return total


def test_the_last_of_a_chain_of_blocks_knows_what_all_have_written() -> None:
    assert sums("acq_rel") == 20 * 21 // 2


@pytest.mark.parametrize("order", ["acquire", "release", "relaxed"])
def test_half_of_the_order_is_not_enough(order: str) -> None:
    with pytest.raises(DataRace, match="write-read race on 1"):
        sums(order)


FENCED = """
extern "C" __global__ void fenced(int* x) { __threadfence(); atomicAdd(x, 1); }
extern "C" __global__ void acquired(int* x) {
    __threadfence();
    int mine = atomicAdd(x, 1);
    __threadfence();
    if (mine < 0) x[1] = mine;
}
"""


@pytest.mark.parametrize("name", ["fenced", "acquired"])
def test_atomics_behind_fences_take_time_linear_in_their_number(name: str) -> None:
    """16,384 took 47 s when each looked at all that those before it had released."""
    out = np.zeros(2, np.int32)
    start = time.process_time()
    run_cuda(FENCED, name, [out], grid=64, block=256, outputs={0: False})
    assert time.process_time() - start < 10
    assert out[0] == 64 * 256


@pytest.mark.parametrize("acquires", [True, False])
def test_a_thread_that_spins_acquires_what_it_reads_once(acquires: bool) -> None:
    """Else each iteration would add a table of knowledge."""
    clocks = VectorClocks(64, 32)
    flags = AcquireReleaseState(clocks)
    places, writers, reader = np.array([0, 4]), np.array([0, 1]), np.array([40])
    flags.write("global", places, writers, MemoryOrder(ANYWHERE, releases=True))
    spins = MemoryOrder(ANYWHERE, acquires=acquires)
    for place in (4, 0):
        flags.read("global", np.array([place]), reader, spins)
    flags.fence(reader, MemoryOrder(ANYWHERE, acquires=True))
    known = int(clocks.known[40])
    assert known != 0
    for _ in range(3):
        flags.read("global", np.array([0]), reader, spins)
        flags.fence(reader, MemoryOrder(ANYWHERE, acquires=True))
        assert int(clocks.known[40]) == known
