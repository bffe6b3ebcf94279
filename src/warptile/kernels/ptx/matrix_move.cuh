// ldmatrix and stmatrix: 8x8 matrices of 16-bit units between shared memory and the registers of a warp (sm_75, sm_90).
// PTX ISA, "Warp-level matrix load instruction: ldmatrix", "Warp-level matrix store instruction: stmatrix".
#pragma once

namespace warptile {

// Loads four matrices. Lane 8 x + y gives the address of row y of matrix x, a multiple of 16 bytes; of matrix x lane L
// gets units 2 (L % 4) and 2 (L % 4) + 1 of row L / 4 in words[x], or with TRANSPOSED of column L / 4.
template <bool TRANSPOSED>
__device__ __forceinline__ void load_matrices(unsigned (&words)[4], unsigned address) {
    if constexpr (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address));
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address));
    }
}

// Stores four matrices: the same, the other way.
template <bool TRANSPOSED>
__device__ __forceinline__ void store_matrices(unsigned address, const unsigned (&words)[4]) {
    if constexpr (TRANSPOSED) {
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
template <bool TRANSPOSED>
__device__ __forceinline__ void store_matrices(unsigned address, const unsigned (&words)[2]) {
    if constexpr (TRANSPOSED) {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(words[0]),
                     "r"(words[1])
                     : "memory");
    } else {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(words[0]),
                     "r"(words[1])
                     : "memory");
    }
}

// Four bytes picked out of the eight of (low, high), the lowest nibble of `selector` naming the lowest of them.
__device__ __forceinline__ unsigned permute_bytes(unsigned low, unsigned high, unsigned selector) {
    return __byte_perm(low, high, selector);
}

}  // namespace warptile
