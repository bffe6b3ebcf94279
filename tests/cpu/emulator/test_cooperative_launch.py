"""Cooperative launches: the grid's barrier, as `grid.sync()` of cooperative groups uses it."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import compiled
from warptile.emulator import emulate
from warptile.errors import DataRace, KernelTrap, UnsupportedError
from warptile.launch.access import Access
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec

GRID_SYNC = """
// A barrier of the grid over the word that the driver keeps for it, whose last arrival flips the highest bit.
__device__ void grid_sync() {
    unsigned low, high;
    asm volatile("mov.u32 %0, %%envreg2;" : "=r"(low));
    asm volatile("mov.u32 %0, %%envreg1;" : "=r"(high));
    unsigned* workspace = (unsigned*)((unsigned long long)high << 32 | low);
    if (workspace == nullptr) __trap();
    unsigned* barrier = workspace + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned arrival = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1, before, now;
        asm volatile("atom.add.release.gpu.u32 %0, [%1], %2;" : "=r"(before) : "l"(barrier), "r"(arrival) : "memory");
        do {
            asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(barrier) : "memory");
        } while (((before ^ now) & 0x80000000u) == 0);
    }
    __syncthreads();
}
extern "C" __global__ void rotate(int* x, int rounds) {
    int size = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = i;
    for (int r = 0; r < rounds; ++r) {
        grid_sync();
        int next = x[(i + 33) % size];
        SECOND
        x[i] = next;
    }
}
"""


def launch(
    *,
    second: bool = True,
    cooperative: bool = True,
    grid: int = 4,
    block: int = 64,
    rounds: int = 3,
    arch: str = "sm_90a",
) -> np.ndarray:
    entry, module = compiled(GRID_SYNC.replace("SECOND", "grid_sync();" * second), "rotate", arch)
    out = np.zeros(grid * block, np.int32)
    spec = LaunchSpec(
        entry, (grid, 1, 1), (block, 1, 1), (Pointer("x"), Scalar("s32", rounds)), cooperative=cooperative
    )
    emulate(module, spec, {"x": out}, accesses={"x": Access(writes=True)}, arch=arch)
    return out


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a"])
@pytest.mark.parametrize("grid", [1, 4, 7])
def test_all_blocks_meet(grid: int, arch: str) -> None:
    size = grid * 64
    np.testing.assert_array_equal(launch(grid=grid, arch=arch), (np.arange(size) + 3 * 33) % size)


def test_a_missing_barrier_of_the_grid_is_a_race() -> None:
    with pytest.raises(DataRace, match="nothing orders the two"):
        launch(second=False)


def test_a_launch_that_is_not_cooperative_traps_and_is_told_why() -> None:
    with pytest.raises(KernelTrap, match=r"LaunchSpec\(cooperative=True\)"):
        launch(cooperative=False)


def test_a_grid_that_would_not_be_resident_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"holds 2 on each of its 132 SMs; take a grid of at most 264"):
        launch(grid=265, block=1024)


def test_all_blocks_run_together_whatever_a_wave_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warptile.emulator.launch_geometry.LANES_PER_WAVE", 64)
    assert launch(grid=3).shape == (192,)
