// Flags in global memory: what was written before one is raised can be read by who has seen it (sm_70).
// PTX ISA, "Memory Consistency Model".
#pragma once

namespace warptile {

__device__ __forceinline__ void raise_flag(unsigned* flag) {
    asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
}

__device__ __forceinline__ void lower_flag(unsigned* flag) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(flag) : "memory");
}

__device__ __forceinline__ void wait_for_flag(const unsigned* flag) {
    unsigned raised;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(raised) : "l"(flag) : "memory");
    } while (!raised);
}

}  // namespace warptile
