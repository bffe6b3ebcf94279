// mbarrier: a barrier in shared memory that counts arrivals and bytes (sm_90).
// PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
#pragma once

namespace warptile {

// All barriers are named by their shared address, a multiple of 8.
inline constexpr unsigned MBARRIER_BYTES = 8;

// Phases of `barrier` end after `arrivals` arrivals, and when the bytes that were expected have come.
__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Shows initialised barriers to the copy engine and to other blocks of the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and lets this phase end only after `bytes` more bytes of copies.
__device__ __forceinline__ void mbarrier_arrive_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Arrives at the same barrier of block `rank` of the cluster. Spelled with the scope of the cluster, the instruction
// becomes a fence of the whole GPU's memory: what is handed over here are reads that are over, which need none.
__device__ __forceinline__ void mbarrier_arrive_at(unsigned barrier, unsigned rank) {
    asm volatile(
        "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
        "r"(rank)
        : "memory");
}

// Waits until the phase of this parity (0 for the first one) is over.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
    unsigned over;
    do {
        asm volatile(
            "{\n.reg .pred over;\nmbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
            "selp.u32 %0, 1, 0, over;\n}"
            : "=r"(over)
            : "r"(barrier), "r"(parity)
            : "memory");
    } while (!over);
}

}  // namespace warptile
