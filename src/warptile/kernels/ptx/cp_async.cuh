// cp.async: copies from global to shared memory that pass through no register (sm_80 and later).
// PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy".
#pragma once

#include "ptx/shared_memory.cuh"

namespace warptile {

// Starts a copy of BYTES bytes; both addresses are multiples of BYTES. 16-byte copies bypass L1 (.cg), the narrow
// ones have no such form. The hint fetches the whole 128-byte line into L2.
template <int BYTES>
__device__ __forceinline__ void cp_async(unsigned shared, const void* global) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2;" ::"r"(shared), "l"(global), "n"(BYTES)
                     : "memory");
    }
}

template <int BYTES>
__device__ __forceinline__ void cp_async(void* shared, const void* global) {
    cp_async<BYTES>(shared_address(shared), global);
}

// The same, but reads only the first `valid_bytes` bytes and writes zeros for the rest; 0 reads nothing at all.
template <int BYTES>
__device__ __forceinline__ void cp_async_zero_fill(unsigned shared, const void* global, int valid_bytes) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(valid_bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global), "n"(BYTES),
                     "r"(valid_bytes)
                     : "memory");
    }
}

template <int BYTES>
__device__ __forceinline__ void cp_async_zero_fill(void* shared, const void* global, int valid_bytes) {
    cp_async_zero_fill<BYTES>(shared_address(shared), global, valid_bytes);
}

// Closes the group of this thread's copies since the last commit; the group may be empty.
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's newest groups are still in flight. Other threads' copies need a
// barrier on top.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

}  // namespace warptile
