// Clusters: blocks that run at the same time and see each other's shared memory (sm_90).
#pragma once

#include "ptx/shared.cuh"

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

// Loads a packet from a shared address, a multiple of its size, of block `rank` of the cluster.
template <int BYTES>
__device__ __forceinline__ Packet<BYTES> load_packet_of(unsigned rank, unsigned address) {
    static_assert(BYTES == 8 || BYTES == 16, "two or four words");
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    Packet<BYTES> packet;
    if constexpr (BYTES == 8) {
        asm volatile("ld.shared::cluster.v2.u32 {%0, %1}, [%2];"
                     : "=r"(packet.bits.x), "=r"(packet.bits.y)
                     : "r"(there)
                     : "memory");
    } else {
        asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(packet.bits.x), "=r"(packet.bits.y), "=r"(packet.bits.z), "=r"(packet.bits.w)
                     : "r"(there)
                     : "memory");
    }
    return packet;
}

}  // namespace warptile
