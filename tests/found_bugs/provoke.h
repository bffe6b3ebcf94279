// Shared by the kernels of this folder: what makes a thread late, and accesses that the compiler leaves where they are.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/cp_async_bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory_order.cuh"
#include "ptx/shared_memory.cuh"

using namespace warptile;

// Keeps a thread busy for some clock cycles: a loop, because __nanosleep may return at once.
__device__ __forceinline__ void delay(int cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {
    }
}

// Weak accesses, as plain C++ ones are, which the compiler neither moves, merges nor drops.
__device__ __forceinline__ void weak_store_shared(unsigned* to, unsigned value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared_address(to)), "r"(value) : "memory");
}
__device__ __forceinline__ unsigned weak_load_shared(const unsigned* from) {
    unsigned value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(shared_address(from)) : "memory");
    return value;
}
__device__ __forceinline__ void weak_store_global(unsigned* to, unsigned value) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ unsigned weak_load_global(const unsigned* from) {
    unsigned value;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

// Starts a copy of shared memory by TMA; addresses and bytes are multiples of 16.
__device__ __forceinline__ void bulk_store(void* to, const void* from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
                 "r"(bytes)
                 : "memory");
}
