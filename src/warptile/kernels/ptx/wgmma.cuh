// wgmma: products of a warpgroup, four warps, with operands in shared memory (sm_90a).
// PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
#pragma once

#include "ptx/elements.cuh"

namespace warptile {

// c += a * b of 64 x K and K x N, K being 32 bytes of elements; c = a * b where `add` is 0. Both operands lie in shared
// memory, described by 64 bits each; a template argument says of each whether lines along M or N are contiguous there.
// Each translation unit defines those that it uses: `isa/wrappers.py` writes them from the table in `isa/wgmma.py`.
template <typename ELEMENT, typename ACCUMULATOR, int N>
struct Wgmma;

// The same with half of A left out: `metadata` says which half.
template <typename ELEMENT, typename ACCUMULATOR, int N>
struct SparseWgmma;

// Keeps assignments to accumulators on this side: naming the registers stops the compiler from moving them.
template <int COUNT>
__device__ __forceinline__ void pin(float (&c)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
template <int COUNT>
__device__ __forceinline__ void pin(unsigned (&c)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(c[i])::"memory");
}
template <int COUNT>
__device__ __forceinline__ void pin(int (&c)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+r"(c[i])::"memory");
}

// Orders accesses to registers and shared memory before the products that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Products since the last call become one group.
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most GROUPS groups are under way.
template <int GROUPS>
__device__ __forceinline__ void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
}

}  // namespace warptile
