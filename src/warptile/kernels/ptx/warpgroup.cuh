// Warpgroups: four warps whose number starts at a multiple of four (sm_90).
#pragma once

namespace warptile {

inline constexpr int WARPGROUP = 128;

// What all lanes of a warp have the same, as the compiler then knows. All lanes execute it.
__device__ __forceinline__ int same_in_all_lanes(int value) { return __shfl_sync(0xffffffff, value, 0); }

// Number of this thread's warpgroup.
__device__ __forceinline__ int warpgroup() { return same_in_all_lanes(threadIdx.x / WARPGROUP); }

// Gives registers back to the block, or takes some of those that others gave: COUNT a thread from here on. All warps of
// a warpgroup execute it. PTX ISA, "setmaxnreg".
template <int COUNT>
__device__ __forceinline__ void registers_down() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void registers_up() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Barrier `number` (1 to 15) among THREADS threads.
template <int THREADS>
__device__ __forceinline__ void named_barrier(int number) {
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(number), "n"(THREADS) : "memory");
}
template <int THREADS>
__device__ __forceinline__ void named_barrier_arrive(int number) {
    asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(number), "n"(THREADS) : "memory");
}

}  // namespace warptile
