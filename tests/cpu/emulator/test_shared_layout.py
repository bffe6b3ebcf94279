"""Where shared variables lie, and which of them a launch pays for."""

from __future__ import annotations

import numpy as np
import pytest

from emulation import run_cuda
from warptile.errors import UnsupportedError

TWO_KERNELS = """
    __shared__ float mine[6000], theirs[32768];
    extern __shared__ __align__(4096) char aligned[];
    extern __shared__ float rest[];
    __device__ __noinline__ float last(const float* x) { return x[5999]; }
    __global__ void small(float* x) {
        for (int i = threadIdx.x; i < 6000; i += 32) mine[i] = x[i];
        rest[threadIdx.x] = 1;
        __syncthreads();
        x[threadIdx.x] = last(mine) + rest[31 - threadIdx.x];
    }
    __global__ void large(float* x) {
        theirs[threadIdx.x] = aligned[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = theirs[31 - threadIdx.x];
    }"""
"""NVRTC leaves the shared variables of both kernels at module scope."""


def test_a_launch_pays_for_the_shared_variables_of_its_own_kernel() -> None:
    x = np.arange(6000, dtype=np.float32)
    run_cuda(TWO_KERNELS, "small", [x], shared=232448 - 24000, outputs={0: False})
    assert x[:32].tolist() == [6000] * 32
    with pytest.raises(UnsupportedError, match="uses 232464 bytes of shared memory"):
        run_cuda(TWO_KERNELS, "small", [x], shared=232448 - 24000 + 16, outputs={0: False})
    # 131072 bytes behind the first 1024, then, from the next multiple of 4096 on, 102400: without those 1024
    with pytest.raises(UnsupportedError, match="uses 236544 bytes"):
        run_cuda(TWO_KERNELS, "large", [x], shared=102400, outputs={0: False})


@pytest.mark.parametrize(("arch", "start"), [("sm_75", 0), ("sm_80", 1024), ("sm_90a", 1024)])
def test_shared_memory_starts_behind_what_the_system_reserves(arch: str, start: int) -> None:
    """From sm_80 on the first 1024 bytes are reserved: kernels that XOR absolute addresses see it."""
    out = np.zeros(3, np.uint32)
    run_cuda(
        """__global__ void k(unsigned* o) {
             extern __shared__ char dynamic[];
             __shared__ int first;
             first = 7;
             unsigned at = __cvta_generic_to_shared(&first);
             o[0] = at;
             o[1] = __cvta_generic_to_shared(dynamic);
             asm volatile("ld.shared.u32 %0, [%1];" : "=r"(o[2]) : "r"(at));
           }""",
        "k", [out], block=1, shared=64, arch=arch,
    )  # fmt: skip
    assert out.tolist() == [start, start + 16, 7]


RESERVED = """
    extern "C" __global__ void meet(int* x) {
        unsigned reserved;
        asm volatile("mov.u32 %0, %%reserved_smem_offset_1;" : "=r"(reserved));
        unsigned before, mine = 1u << (threadIdx.x / 32);
        if (threadIdx.x % 32 == 0) {
            asm volatile("atom.shared.or.acq_rel.cta.b32 %0, [%1], %2;"
                         : "=r"(before) : "r"(reserved + 284), "r"(mine) : "memory");
            x[threadIdx.x / 32] = before;
        }
    }"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_barriers_of_cooperative_groups_lie_in_reserved_shared_memory_and_are_zero(arch: str) -> None:
    """288 bytes: groups of several warps keep one word for each size there, which nobody initializes."""
    x = np.zeros(12, np.int32)
    run_cuda(RESERVED, "meet", [x], grid=1, block=128, arch=arch, outputs={0: False})
    assert sorted(x[:4].tolist()) == [0, 1, 3, 7]


UNUSED = """
    __device__ int unused[100], counted[4] = {1, 2, 3, 4};
    __device__ int* pointer = counted + 2;
    extern "C" __global__ void k(int* x) { x[0] = *pointer; x[1] = unused == nullptr ? 0 : 1; }
    extern "C" __global__ void other(int* x) { x[0] = *pointer; }
"""


@pytest.mark.parametrize("name", ["k", "other"])
def test_variables_that_a_kernel_uses_through_others_have_memory(name: str) -> None:
    x = np.zeros(2, np.int32)
    run_cuda(UNUSED, name, [x], block=1, outputs={0: False})
    assert x[0] == 3
