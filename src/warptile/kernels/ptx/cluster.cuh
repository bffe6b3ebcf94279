// Clusters: blocks that run at the same time and see each other's shared memory (sm_90).
#pragma once

namespace warptile {

// Number of this block in its cluster.
__device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of the cluster meet. What one has written others then see; RELAXED: only that it has come this far.
template <bool RELAXED>
__device__ __forceinline__ void cluster_barrier() {
    if constexpr (RELAXED) {
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    } else {
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    }
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

}  // namespace warptile
