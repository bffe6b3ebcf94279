// wgmma: matrix multiply-accumulate by a warpgroup, four warps, with operands in shared memory (sm_90a).
// PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
#pragma once

#include "ptx/elements.cuh"

namespace warptile {

// c += a * b of 64 x K and K x N, K being 32 bytes of elements; c = a * b where `add` is 0. Both operands are in shared
// memory, given by matrix descriptors of 64 bits; a template argument says of each whether it is MN-major. Each
// translation unit defines those that it uses: `isa/wrappers/wgmma.py` writes them from the table in `isa/wgmma.py`.
template <typename ELEMENT, typename ACCUMULATOR, int N>
struct Wgmma;

// The same with half of A left out: `metadata` says which half.
template <typename ELEMENT, typename ACCUMULATOR, int N>
struct SparseWgmma;

// Keeps the compiler from moving accesses to accumulators across this point while asynchronous wgmmas use the
// registers.
template <int COUNT>
__device__ __forceinline__ void warpgroup_fence_operand(float (&c)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
template <int COUNT>
__device__ __forceinline__ void warpgroup_fence_operand(unsigned (&c)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(c[i])::"memory");
}
template <int COUNT>
__device__ __forceinline__ void warpgroup_fence_operand(int (&c)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(c[i])::"memory");
}

// Orders earlier accesses to registers and shared memory before the wgmmas that follow. PTX ISA, "wgmma.fence".
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Commits the wgmmas since the last commit as one group.
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most GROUPS groups are in flight.
template <int GROUPS>
__device__ __forceinline__ void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
}

}  // namespace warptile
