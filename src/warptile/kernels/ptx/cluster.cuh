// Thread block clusters: CTAs that run at the same time and can access each other's shared memory (sm_90).
// PTX ISA, "Cooperative Thread Arrays" and "Parallel Synchronization and Communication Instructions: barrier.cluster".
#pragma once

#include "ptx/shared_memory.cuh"

namespace warptile {

// Rank of this CTA in its cluster: the special register %cluster_ctarank.
__device__ __forceinline__ unsigned cluster_ctarank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// CTAs of this cluster, 1 where the launch has none: the special register %cluster_nctarank.
__device__ __forceinline__ unsigned cluster_nctarank() {
    unsigned count;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
    return count;
}

// All threads of the cluster arrive and wait. Arrival releases this thread's earlier writes to those who wait; the
// relaxed form orders no memory and only says that the thread has come this far.
__device__ __forceinline__ void barrier_cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void barrier_cluster_arrive_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void barrier_cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_sync() {
    barrier_cluster_arrive();
    barrier_cluster_wait();
}
__device__ __forceinline__ void cluster_sync_relaxed() {
    barrier_cluster_arrive_relaxed();
    barrier_cluster_wait();
}

// The address in the cluster's shared window of what lies at shared address `address` of CTA `rank`.
__device__ __forceinline__ unsigned mapa(unsigned address, unsigned rank) {
    unsigned mapped;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}

// Loads a packet from the shared memory of any CTA of the cluster; the address is `mapa`'s, a multiple of the packet's
// size.
template <int BYTES>
__device__ __forceinline__ Packet<BYTES> ld_shared_cluster(unsigned address) {
    static_assert(BYTES == 8 || BYTES == 16, "two or four words");
    Packet<BYTES> packet;
    if constexpr (BYTES == 8) {
        asm volatile("ld.shared::cluster.v2.u32 {%0, %1}, [%2];"
                     : "=r"(packet.bits.x), "=r"(packet.bits.y)
                     : "r"(address)
                     : "memory");
    } else {
        asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(packet.bits.x), "=r"(packet.bits.y), "=r"(packet.bits.z), "=r"(packet.bits.w)
                     : "r"(address)
                     : "memory");
    }
    return packet;
}

}  // namespace warptile
