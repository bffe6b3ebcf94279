// CTAs that share the K of a tile of D: each has the sums of a part of K, and the last one to arrive adds them up.
#pragma once

#include "ptx/memory_order.cuh"

namespace warptile {

// The first of the `steps` that are part `part` of `parts`: steps * part / parts, whose product may exceed 32 bits. A
// 64-bit division takes hundreds of clocks; the remainder's product does not exceed them, with at most 65,536 parts.
__device__ __forceinline__ unsigned begin_of_part(unsigned steps, unsigned part, unsigned parts) {
    if (parts == 1) return part * steps;
    return part * (steps / parts) + part * (steps % parts) / parts;
}

// Adds up the `parts` parts of a tile, in the order of K, so that results do not depend on who is last; gives whether
// this CTA was: `sums` of all others are worthless. All THREADS threads call it.
//
// `slots` has COUNT * THREADS elements for each part of this tile, element i of all threads of a CTA contiguous.
// `arrivals` counts those that arrived, and is zero before and after.
template <int THREADS, typename SUM, int COUNT>
__device__ __forceinline__ bool add_parts(SUM (&sums)[COUNT], SUM* slots, unsigned* arrivals, unsigned part,
                                          unsigned parts) {
    SUM* const own = slots + part * COUNT * THREADS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) own[i * THREADS] = sums[i];
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) is_last = atom_acq_rel_gpu_inc(arrivals, parts - 1) == parts - 1;
    __syncthreads();
    if (!is_last) return false;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sums[i] = 0;
    constexpr int AT_ONCE = COUNT <= 16 ? 4 : 2;  // parts whose loads are in flight
#pragma unroll AT_ONCE
    for (unsigned other = 0; other < parts; ++other) {
        const SUM* const theirs = slots + other * COUNT * THREADS + threadIdx.x;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) sums[i] += __ldcg(theirs + i * THREADS);
    }
    return true;
}

}  // namespace warptile
