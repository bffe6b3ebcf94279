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

// A counter at which `members` arrive and which, when all of them have, `leavers` leave: the last one leaves it at zero.
// What a member wrote before it arrived can be read by those who have waited.
__device__ __forceinline__ void arrive_at_counter(unsigned* counter, unsigned members, unsigned leavers) {
    asm volatile("red.release.gpu.global.inc.u32 [%0], %1;" ::"l"(counter), "r"(members + leavers - 1) : "memory");
}

__device__ __forceinline__ void leave_counter(unsigned* counter, unsigned members, unsigned leavers) {
    asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;" ::"l"(counter), "r"(members + leavers - 1) : "memory");
}

__device__ __forceinline__ void wait_for_counter(const unsigned* counter, unsigned members) {
    unsigned arrived;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(counter) : "memory");
    } while (arrived < members);
}

}  // namespace warptile
