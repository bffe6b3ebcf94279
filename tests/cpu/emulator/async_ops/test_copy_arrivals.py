"""Copies that arrive at mbarriers when they are over, as `cuda::memcpy_async` makes them, in several CTAs."""

import time

import numpy as np
import pytest

from emulation import run_cuda
from warptile.errors import DataRace, EmulationError

RING = """
extern "C" __global__ void ring(int* out, const int* x) {
    __shared__ __align__(16) int stage[2][512];
    __shared__ unsigned long long full[2];
    unsigned bar = (unsigned)__cvta_generic_to_shared(full), to = (unsigned)__cvta_generic_to_shared(stage);
    int t = threadIdx.x, sum = 0;
    if (t < 2) asm volatile("mbarrier.init.shared.b64 [%0], 128;" :: "r"(bar + 8 * t) : "memory");
    __syncthreads();
    for (int i = 0; i < 5; ++i) {
        if (i < 4) {
            for (int j = 0; j < 4; ++j)
                asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                             :: "r"(to + 2048 * (i & 1) + 4 * (j * 128 + t)),
                                "l"(x + blockIdx.x * 2048 + i * 512 + j * 128 + t) : "memory");
            asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(bar + 8 * (i & 1)) : "memory");
        }
        if (i > 0) {
            int last = i - 1, done;
            if (WAITS) do {
                asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.s32 %0, 1, 0, p;}"
                             : "=r"(done) : "r"(bar + 8 * (last & 1)), "r"((last >> 1) & 1) : "memory");
            } while (!done);
            for (int j = 0; j < 4; ++j) sum += stage[last & 1][t * 4 + j];
            BARRIER
        }
    }
    out[blockIdx.x * 128 + t] = sum;
}
"""


def run(schedule: str, *, grid: int = 3, waits: int = 1, barrier: str = "__syncthreads();") -> None:
    text = RING.replace("WAITS", str(waits)).replace("BARRIER", barrier)
    x = np.random.default_rng(0).integers(-1000, 1000, grid * 2048).astype(np.int32)
    out = np.zeros(grid * 128, np.int32)
    run_cuda(text, "ring", [out, x], grid=grid, block=128, schedule=schedule)
    np.testing.assert_array_equal(out, x.reshape(grid, 4, 128, 4).sum(axis=(1, 3)).reshape(-1))


@pytest.mark.parametrize("schedule", ["latest", "earliest", "random:1", "random:2"])
def test_every_cta_waits_for_its_own_copies(schedule: str) -> None:
    run(schedule)


@pytest.mark.parametrize("schedule", ["latest", "earliest"])
def test_a_missing_part_is_told(schedule: str) -> None:
    with pytest.raises(EmulationError, match=r"race on shared memory|has not been waited for"):
        run(schedule, waits=0)
    with pytest.raises(DataRace, match="race on shared memory"):
        run(schedule, barrier="")


def test_time_is_linear_in_the_ctas() -> None:
    """64 CTAs took 10 s when every arrival looked through the copies of all of them."""
    run("latest", grid=2)
    start = time.process_time()
    run("latest", grid=64)
    assert time.process_time() - start < 5
