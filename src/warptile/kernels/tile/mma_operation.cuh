// What an mma.sync kernel computes with: element types, layouts, instruction shape, and the matrices in global memory.
#pragma once

#include "ptx/mma.cuh"
#include "tile/gemm.cuh"
#include "tile/scale.cuh"
#include "tile/traits.cuh"

namespace warptile {

// The number type behind an accumulator, and how many numbers one register of C holds.
template <typename ACCUMULATOR>
struct AccumulatorElement {
    using type = ACCUMULATOR;
    static constexpr int PER_REGISTER = 1;
};
template <>
struct AccumulatorElement<__half> {
    using type = __half;
    static constexpr int PER_REGISTER = 2;
};
template <>
struct AccumulatorElement<saturating_int> {
    using type = int;
    static constexpr int PER_REGISTER = 1;
};
template <>
struct AccumulatorElement<xor_int> {
    using type = int;
    static constexpr int PER_REGISTER = 1;
};

// Types, layouts and instruction shape FM x 8 x FK (FK in elements). A is stored [M, K] or, column-major, [K, M]; B is
// stored [K, N] or, column-major, [N, K].
//
// Whatever the type, a warp multiplies 16 x 8 *fragments* of one K_BLOCK: 32 bytes of K (64 or 128 for float64).
// All types then have the same registers, the m16n8k16 layout of f16 counted in bytes, and a smaller instruction is
// applied to parts of them: its K halves are consecutive registers, its M halves alternate ones.
template <typename ELEMENT_, typename ACCUMULATOR_, typename OUT_, bool A_COLUMN_MAJOR_, bool B_COLUMN_MAJOR_, int FM_,
          int FK_>
struct MmaOperation {
    using ELEMENT = ELEMENT_;
    using ACCUMULATOR = ACCUMULATOR_;
    using OUT = OUT_;
    using ACC_ELEMENT = typename AccumulatorElement<ACCUMULATOR>::type;
    using SCALE = typename Scale<ACC_ELEMENT>::type;
    using INSTRUCTION = Mma<ELEMENT, ACCUMULATOR, FM_, 8, FK_>;
    using WORD = typename INSTRUCTION::AB;
    using REGISTER = typename INSTRUCTION::C;
    static constexpr bool A_COLUMN_MAJOR = A_COLUMN_MAJOR_, B_COLUMN_MAJOR = B_COLUMN_MAJOR_;
    static constexpr int FM = FM_, FK = FK_;
    static constexpr bool DOUBLE = SAME<ELEMENT, double>;

    // A unit is what is addressed: an element, or the byte that holds several. All offsets along K below are in units.
    static constexpr int ELEMENTS_PER_UNIT = ELEMENTS_IN<ELEMENT>;
    static constexpr int K_BLOCK_BYTES = DOUBLE ? (FK == 16 ? 128 : 64) : 32;
    static constexpr int K_BLOCK = K_BLOCK_BYTES / sizeof(ELEMENT);

    // Registers of a fragment. A has two of them for the two halves of its rows, then the next ones further on in K.
    static constexpr int A_WORDS = K_BLOCK_BYTES * 16 / 32 / sizeof(WORD), B_WORDS = A_WORDS / 2;
    static constexpr int C_REGISTERS = 4 / AccumulatorElement<ACCUMULATOR>::PER_REGISTER;

    static_assert(FM == 16 || FM == 8, "instructions have 16 or 8 rows");
    static_assert(ELEMENTS_PER_UNIT == 1 || (!A_COLUMN_MAJOR && B_COLUMN_MAJOR),
                  "types narrower than a byte need A stored as [M, K] and B as [N, K]");

    // c += a * b, fragment by fragment.
    static __device__ __forceinline__ void multiply(REGISTER (&c)[C_REGISTERS], const WORD* a, const WORD* b) {
        constexpr int PARTS = K_BLOCK * ELEMENTS_PER_UNIT / FK, WORDS = A_WORDS / PARTS;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            if constexpr (FM == 16) {
                INSTRUCTION::mma_sync(c, a + part * WORDS, b + part * WORDS / 2);
            } else {
                static_assert(FM == 16 || WORDS == 2, "instructions with 8 rows take one register of A");
                INSTRUCTION::mma_sync(c, a + part * WORDS, b + part * WORDS / 2);
                INSTRUCTION::mma_sync(c + C_REGISTERS / 2, a + part * WORDS + 1, b + part * WORDS / 2);
            }
        }
    }
};

}  // namespace warptile
