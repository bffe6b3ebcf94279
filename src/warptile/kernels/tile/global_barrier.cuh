// Synchronisation of CTAs through global memory: flags and counters. All CTAs that wait must be co-resident.
#pragma once

#include "ptx/memory_order.cuh"

namespace warptile {

// A flag that one thread sets when data is ready and the reader clears: what was written before `set_flag` can be read
// after `wait_for_flag`.
__device__ __forceinline__ void set_flag(unsigned* flag) { st_release_gpu(flag, 1); }

__device__ __forceinline__ void clear_flag(unsigned* flag) { st_relaxed_gpu(flag, 0); }

__device__ __forceinline__ void wait_for_flag(const unsigned* flag) {
    while (!ld_acquire_gpu(flag)) {
    }
}

// The same for a flag that a stream memory operation sets, behind a copy in its stream.
__device__ __forceinline__ void wait_for_stream_flag(const unsigned* flag) {
    while (!ld_acquire_sys(flag)) {
    }
}

// A counter at which `members` arrive and which, when all of them have arrived, `leavers` leave. The last one to leave
// wraps it around to zero, ready for the next launch. What a member wrote before it arrived can be read by those who
// have waited.
__device__ __forceinline__ void arrive_at_counter(unsigned* counter, unsigned members, unsigned leavers) {
    red_release_gpu_inc(counter, members + leavers - 1);
}

__device__ __forceinline__ void wait_for_counter(const unsigned* counter, unsigned members) {
    while (ld_acquire_gpu(counter) < members) {
    }
}

__device__ __forceinline__ void leave_counter(unsigned* counter, unsigned members, unsigned leavers) {
    red_relaxed_gpu_inc(counter, members + leavers - 1);
}

}  // namespace warptile
