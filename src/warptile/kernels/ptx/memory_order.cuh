// Accesses to global memory that order others, at the scope of the GPU or of the system (sm_70).
// PTX ISA, "Memory Consistency Model": what a thread writes before a release can be read by a thread whose acquire
// observes it.
#pragma once

namespace warptile {

__device__ __forceinline__ void st_release_gpu(unsigned* address, unsigned value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void st_relaxed_gpu(unsigned* address, unsigned value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

__device__ __forceinline__ unsigned ld_acquire_gpu(const unsigned* address) {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

// The same for writes by other GPUs and by copies that no kernel makes.
__device__ __forceinline__ unsigned ld_acquire_sys(const unsigned* address) {
    unsigned value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

// Increments a counter; at `limit` it wraps around to zero.
__device__ __forceinline__ void red_release_gpu_inc(unsigned* address, unsigned limit) {
    asm volatile("red.release.gpu.global.inc.u32 [%0], %1;" ::"l"(address), "r"(limit) : "memory");
}

__device__ __forceinline__ void red_relaxed_gpu_inc(unsigned* address, unsigned limit) {
    asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;" ::"l"(address), "r"(limit) : "memory");
}

// Adds to a counter; gives its value before.
__device__ __forceinline__ unsigned atom_relaxed_gpu_add(unsigned* address, unsigned addend) {
    unsigned before;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(addend) : "memory");
    return before;
}

// Increments a counter as before, in the order of both a release and an acquire; gives the counter's value before.
__device__ __forceinline__ unsigned atom_acq_rel_gpu_inc(unsigned* address, unsigned limit) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(limit) : "memory");
    return before;
}

}  // namespace warptile
