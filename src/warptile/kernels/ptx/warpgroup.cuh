// Warpgroups: four consecutive warps, the first of them a multiple of four (sm_90).
#pragma once

namespace warptile {

inline constexpr int WARPGROUP = 128;

// A value that is the same in all lanes. The shuffle tells the compiler so: what follows from it needs no divergent
// code and fits into uniform registers. All lanes execute it.
__device__ __forceinline__ int warp_uniform(int value) { return __shfl_sync(0xffffffff, value, 0); }

// True in one lane of the warp, which all lanes execute. The compiler knows then that one thread is active, and issues
// TMA with operands in uniform registers once; under a condition such as lane == 0 it writes a loop around each one, in
// case lanes differ. PTX ISA, "elect.sync".
__device__ __forceinline__ bool elect_one() {
    unsigned elected;
    asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(elected));
    return elected != 0;
}

// True in one thread of the CTA's `warp`. All lanes of a warp execute it together.
__device__ __forceinline__ bool elect_one_of_warp(int warp) {
    return warp_uniform(threadIdx.x / 32) == warp && elect_one();
}

// Index of this thread's warpgroup in the CTA.
__device__ __forceinline__ int warpgroup_index() { return warp_uniform(threadIdx.x / WARPGROUP); }

// Register reallocation: releases registers to the CTA's pool, or takes some that other warps released; COUNT a thread
// from here on. All warps of a warpgroup execute it. PTX ISA, "setmaxnreg".
template <int COUNT>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Named barrier `barrier` (1 to 15; 0 is __syncthreads) among THREADS threads. bar.sync is another spelling of
// barrier.sync.aligned: PTX ISA, "Parallel Synchronization and Communication Instructions: bar, barrier".
template <int THREADS>
__device__ __forceinline__ void bar_sync(int barrier) {
    asm volatile("barrier.sync.aligned %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}
template <int THREADS>
__device__ __forceinline__ void bar_arrive(int barrier) {
    asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory");
}

}  // namespace warptile
