// ldmatrix and stmatrix: 8x8 matrices of 16-bit elements between shared memory and the registers of a warp (sm_75,
// sm_90). PTX ISA, "Warp-level matrix load instruction: ldmatrix", "Warp-level matrix store instruction: stmatrix".
#pragma once

namespace warptile {

// Loads four matrices. Lane 8 x + y gives the address of row y of matrix x, a multiple of 16 bytes; of matrix x lane L
// gets elements 2 (L % 4) and 2 (L % 4) + 1 of row L / 4 in words[x], or with TRANS of column L / 4.
template <bool TRANS>
__device__ __forceinline__ void ldmatrix_x4(unsigned (&words)[4], unsigned address) {
    if constexpr (TRANS) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address));
    }
}

// Loads two matrices; the addresses of lanes 16 to 31 are not used.
template <bool TRANS>
__device__ __forceinline__ void ldmatrix_x2(unsigned (&words)[2], unsigned address) {
    if constexpr (TRANS) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(words[0]), "=r"(words[1])
                     : "r"(address));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(words[0]), "=r"(words[1])
                     : "r"(address));
    }
}

// Stores four matrices, with the same layout.
template <bool TRANS>
__device__ __forceinline__ void stmatrix_x4(unsigned address, const unsigned (&words)[4]) {
    if constexpr (TRANS) {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                     "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words[0]),
                     "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
    }
}

// Stores two matrices; the addresses of lanes 16 to 31 are not used.
template <bool TRANS>
__device__ __forceinline__ void stmatrix_x2(unsigned address, const unsigned (&words)[2]) {
    if constexpr (TRANS) {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(words[0]),
                     "r"(words[1])
                     : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(words[0]),
                     "r"(words[1])
                     : "memory");
    }
}

}  // namespace warptile
