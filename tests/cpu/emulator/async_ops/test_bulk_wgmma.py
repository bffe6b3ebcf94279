"""Tensor copies and wgmma together: what one puts into shared memory under a swizzle, the other's descriptors find."""

from __future__ import annotations

import numpy as np
import pytest

from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.emulator import emulate
from warptile.errors import EmulationError
from warptile.launch.access import Access, Rows
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.launch.tensor_map import TensorMap
from warptile.ptx import parse

PRODUCT = """
struct alignas(64) Map { unsigned long long words[16]; };
typedef unsigned long long u64;
__device__ unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
// K-major rows of 128 bytes under the 128-byte swizzle: groups of 8 rows lie 1024 bytes apart.
__device__ u64 descriptor(const void* p) {
    return (u64)(address(p) >> 4 & 0x3FFF) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// D[64, 8] = A[64, 64] B[8, 64]^T
template <bool WAITS>
__global__ void product(const __grid_constant__ Map a, const __grid_constant__ Map b, float* d) {
    __shared__ alignas(1024) unsigned short tile_a[64 * 64], tile_b[8 * 64];
    __shared__ u64 full;
    int t = threadIdx.x;
    if (t == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address(&full)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 9216;" :: "r"(address(&full)) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %2}], [%3];"
                     :: "r"(address(tile_a)), "l"(&a), "r"(0), "r"(address(&full)) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %2}], [%3];"
                     :: "r"(address(tile_b)), "l"(&b), "r"(0), "r"(address(&full)) : "memory");
    }
    __syncthreads();
    unsigned done = !WAITS;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(address(&full)) : "memory");
    float c[4] = {0, 0, 0, 0};
    // The accumulators get registers of their own before the fence, not between it and the first product.
    asm volatile("wgmma.fence.sync.aligned;" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) :: "memory");
    for (int k = 0; k < 4; ++k)
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "l"(descriptor(tile_a) + 2 * k), "l"(descriptor(tile_b) + 2 * k));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) :: "memory");
    int row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
    for (int i = 0; i < 4; ++i) d[(row + (i >> 1) * 8) * 8 + column + (i & 1)] = c[i];
}
"""


def run(waits: str, schedule: str) -> None:
    """One launch on small whole numbers, whose sums are exact."""
    kernel = compile_source(Source(PRODUCT, f"product<{waits}>", may_spill=True), "sm_90a")
    random = np.random.default_rng(3)
    a, b = (random.integers(-9, 9, (rows, 64)).astype(np.float16) for rows in (64, 8))
    d = np.zeros((64, 8), dtype=np.float32)
    maps = [
        TensorMap(name, "f16", (64, rows), (128,), (64, rows), swizzle="128B") for name, rows in (("A", 64), ("B", 8))
    ]
    spec = LaunchSpec(kernel.entry, (1, 1, 1), (128, 1, 1), (*maps, Pointer("D")))
    access = {"D": Access(writes=True, complete=Rows(64, 8, 4, 32))}
    emulate(parse(kernel.ptx), spec, {"A": a, "B": b, "D": d}, accesses=access, arch="sm_90a", schedule=schedule)
    np.testing.assert_array_equal(d, a.astype(np.float32) @ b.T.astype(np.float32))


@pytest.mark.parametrize("schedule", ["latest", "earliest", "random:1"])
def test_tiles_that_were_waited_for_are_multiplied(schedule: str) -> None:
    run("true", schedule)


@pytest.mark.parametrize("schedule", ["latest", "earliest", "random:1"])
def test_multiplying_before_the_tiles_have_come_is_told(schedule: str) -> None:
    with pytest.raises(EmulationError, match=r"has not been waited for|nobody has waited for the copy"):
        run("false", schedule)
