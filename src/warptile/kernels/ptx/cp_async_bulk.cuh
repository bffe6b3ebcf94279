// Bulk copies of contiguous bytes from global to shared memory (sm_90).
// PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk".
#pragma once

namespace warptile {

// Copies `bytes` from `from` into shared memory, both of them multiples of 16 like the addresses. They complete the
// transaction count of `barrier`. The cache policy is evict_first: for bytes that no other CTA loads soon.
__device__ __forceinline__ void cp_async_bulk_load_evict_first(unsigned to, const void* from, unsigned bytes,
                                                               unsigned barrier) {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
        "%4;" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
        : "memory");
}

// The same with the usual policy.
__device__ __forceinline__ void cp_async_bulk_load(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

// Starts to bring `bytes` from `from` on into L2, both of them multiples of 16. Nothing is read: another launch may
// still write there.
__device__ __forceinline__ void cp_async_bulk_prefetch_l2(const void* from, unsigned bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

}  // namespace warptile
