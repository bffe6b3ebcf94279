// mbarrier: a barrier in shared memory that counts arrivals and bytes (sm_90).
// PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
#pragma once

namespace warptile {

// An mbarrier is 8 bytes, aligned to 8; functions take its shared address. PTX ISA, "Size and alignment of mbarrier
// object".
inline constexpr unsigned MBARRIER_BYTES = 8;

// A phase completes after `arrivals` arrivals and when its expected bytes have been transferred.
__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the async proxy (TMA) and to other CTAs of the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives where `condition` holds, by a predicated instruction: a branch between wgmmas can make ptxas serialise them.
__device__ __forceinline__ void mbarrier_arrive_if(unsigned barrier, bool condition) {
    asm volatile(
        "{\n.reg .pred arrives;\nsetp.ne.u32 arrives, %1, 0;\n@arrives mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::
            "r"(barrier),
        "r"(static_cast<unsigned>(condition))
        : "memory");
}

// Arrives and raises the phase's expected transaction count by `bytes`.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Arrives at the same barrier in CTA `rank` of the cluster: mapa, then mbarrier.arrive. With an explicit .cluster scope
// the instruction would compile to a fence of the whole GPU's memory. It needs none here: what an arrival hands over
// are reads that have completed.
__device__ __forceinline__ void mbarrier_arrive_remote(unsigned barrier, unsigned rank) {
    asm volatile(
        "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
        "r"(rank)
        : "memory");
}

// Whether the phase of this parity has completed. The hardware may suspend the thread for a while before it answers.
__device__ __forceinline__ unsigned mbarrier_try_wait_parity(unsigned barrier, unsigned parity) {
    unsigned completed;
    asm volatile(
        "{\n.reg .pred completed;\nmbarrier.try_wait.parity.shared::cta.b64 completed, [%1], %2;\n"
        "selp.u32 %0, 1, 0, completed;\n}"
        : "=r"(completed)
        : "r"(barrier), "r"(parity)
        : "memory");
    return completed;
}

// Waits until the phase of this parity has completed; the first phase has parity 0.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
    while (!mbarrier_try_wait_parity(barrier, parity)) {
    }
}

}  // namespace warptile
