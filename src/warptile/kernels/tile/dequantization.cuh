// Quantized weights: from packed codes in shared memory to fragments of operand A of wgmma in registers.
#pragma once

#include "ptx/elements.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/warpgroup.cuh"

namespace warptile {

// Two elements of 16 bits in one register: the arithmetic of ELEMENT, rounded to nearest.
template <typename ELEMENT>
struct PairArithmetic;
template <>
struct PairArithmetic<__half> {
    // 1024 + u, where the integer u stands in the lowest ten bits.
    static constexpr unsigned INTEGERS = 0x64006400;
    static __device__ __forceinline__ unsigned subtract(unsigned left, unsigned right) {
        unsigned difference;
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(left), "r"(right));
        return difference;
    }
    static __device__ __forceinline__ unsigned multiply(unsigned left, unsigned right) {
        unsigned product;
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(left), "r"(right));
        return product;
    }
    static __device__ __forceinline__ unsigned multiply_add(unsigned left, unsigned right, unsigned addend) {
        unsigned sum;
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(left), "r"(right), "r"(addend));
        return sum;
    }
};
template <>
struct PairArithmetic<__nv_bfloat16> {
    // 128 + u, where the integer u stands in the lowest seven bits.
    static constexpr unsigned INTEGERS = 0x43004300;
    static __device__ __forceinline__ unsigned subtract(unsigned left, unsigned right) {
        unsigned difference;
        asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(difference) : "r"(left), "r"(right));
        return difference;
    }
    static __device__ __forceinline__ unsigned multiply(unsigned left, unsigned right) {
        unsigned product;
        asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(left), "r"(right));
        return product;
    }
    static __device__ __forceinline__ unsigned multiply_add(unsigned left, unsigned right, unsigned addend) {
        unsigned sum;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(left), "r"(right), "r"(addend));
        return sum;
    }
};

// (word & mask) | bits and (word & mask) ^ bits in one instruction, which C++ expressions with two constants are not:
// PTX ISA, "Logic and Shift Instructions: lop3".
__device__ __forceinline__ unsigned and_or(unsigned word, unsigned mask, unsigned bits) {
    unsigned result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
    return result;
}
__device__ __forceinline__ unsigned and_xor(unsigned word, unsigned mask, unsigned bits) {
    unsigned result;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
    return result;
}

// The codes of two elements as numbers. Codes are taken from a word without a conversion: with the right exponent above
// it, an integer is the fraction of a number that is larger by a power of two. `number(word)` is what the elements'
// codes, at bits 0 and 16 of the word, are plus an offset; ZERO is that offset plus the code of zero, twice.
template <typename ELEMENT, int BITS>
struct CodePair;
template <typename ELEMENT>
struct CodePair<ELEMENT, 4> {  // codes from 0 to 15; 8 is zero
    static constexpr unsigned ZERO = PairArithmetic<ELEMENT>::INTEGERS | 0x00080008;
    static constexpr bool EXACT_WITHOUT_ZERO = false;
    static __device__ __forceinline__ unsigned number(unsigned word) {
        return and_or(word, 0x000f000f, PairArithmetic<ELEMENT>::INTEGERS);
    }
};
template <>
struct CodePair<__half, 8> {  // two's complement; its sign bit is inverted, which adds 128
    static constexpr unsigned ZERO = PairArithmetic<__half>::INTEGERS | 0x00800080;
    static constexpr bool EXACT_WITHOUT_ZERO = false;
    static __device__ __forceinline__ unsigned number(unsigned word) { return and_xor(word, 0x00ff00ff, ZERO); }
};
template <>
struct CodePair<__nv_bfloat16, 8> {
    static constexpr unsigned ZERO = 0;
    static constexpr bool EXACT_WITHOUT_ZERO = true;
    // The fraction has room for seven bits. The eighth, minus 128, is subtracted: next to the exponent of 128 it is the
    // lowest bit of an exponent, and makes 256 of it.
    static __device__ __forceinline__ unsigned number(unsigned word) {
        constexpr unsigned INTEGERS = PairArithmetic<__nv_bfloat16>::INTEGERS;
        return PairArithmetic<__nv_bfloat16>::subtract(and_or(word, 0x007f007f, INTEGERS),
                                                       and_or(word, 0x00800080, INTEGERS));
    }
};

// The same where scales are small: s * q - s * zero in one instruction, rounded once. The bits of a code are a number
// as they are, q times a power of two: a subnormal one, or with the lowest bit of the exponent a normal one next to it.
// What the scale is multiplied by makes up for that power of two: FACTOR and then, in even and odd registers of a
// fragment, REST. LIMIT is what scales are below; the code of zero is -NEGATED_ZERO.
template <typename ELEMENT, int BITS>
struct SmallScale;
template <>
struct SmallScale<__nv_bfloat16, 4> {  // the lowest bit is 2^-133; codes of odd registers are four bits above it
    static constexpr unsigned LIMIT = 0x3d003d00, FACTOR = 0x7f007f00, REST[] = {0x42804280, 0x40804080};
    static constexpr unsigned NEGATED_ZERO = 0xc100c100;
    static __device__ __forceinline__ unsigned number(unsigned word, int odd) {
        return word & (odd ? 0x00f000f0 : 0x000f000f);
    }
};
template <>
struct SmallScale<__half, 4> {  // the lowest bit is 2^-24; codes of even registers come up to those of odd ones
    static constexpr unsigned LIMIT = 0x2c002c00, FACTOR = 0x78007800, REST[] = {0x50005000, 0x50005000};
    static constexpr unsigned NEGATED_ZERO = 0xc800c800, SIXTEEN = 0x4c004c00;
    static __device__ __forceinline__ unsigned number(unsigned word, int odd) {
        return odd ? word & 0x00f000f0 : PairArithmetic<__half>::multiply(word & 0x000f000f, SIXTEEN);
    }
};
template <>
struct SmallScale<__nv_bfloat16, 8> {  // the inverted sign bit adds 128
    static constexpr unsigned LIMIT = 0x3d003d00, FACTOR = 0x7f007f00, REST[] = {0x42804280, 0x42804280};
    static constexpr unsigned NEGATED_ZERO = 0xc300c300;
    static __device__ __forceinline__ unsigned number(unsigned word, int) {
        return and_xor(word, 0x00ff00ff, 0x00800080);
    }
};
template <>
struct SmallScale<__half, 8> {
    static constexpr unsigned LIMIT = 0x1c001c00, FACTOR = 0x78007800, REST[] = {0x60006000, 0x60006000};
    static constexpr unsigned NEGATED_ZERO = 0xd800d800;
    static __device__ __forceinline__ unsigned number(unsigned word, int) {
        return and_xor(word, 0x00ff00ff, 0x00800080);
    }
};

// A block of 64 rows x 128 elements along K in shared memory, as `warptile.arrays.quantized_weights` packs it: codes in
// 16-byte vectors of each thread, then for each GROUP along K a word for each pair of rows that are eight apart: their
// scales; with ZERO_POINT the same again: what their groups' zero points are as `CodePair::number`.
template <typename ELEMENT_, int BITS_, int GROUP_, bool ZERO_POINT_>
struct QuantizedBlock {
    using ELEMENT = ELEMENT_;
    using PAIR = PairArithmetic<ELEMENT>;
    using CODES = CodePair<ELEMENT, BITS_>;
    using SMALL = SmallScale<ELEMENT, BITS_>;
    static constexpr int BITS = BITS_, GROUP = GROUP_, ROWS = 64, K = 128, GROUPS = K / GROUP;
    static constexpr bool ZERO_POINT = ZERO_POINT_;
    static constexpr int VECTOR_BYTES = 16 * WARPGROUP, CODE_BYTES = ROWS * K * BITS / 8;
    static constexpr int GROUP_BYTES = ROWS * static_cast<int>(sizeof(unsigned short)),
                         SCALE_BYTES = GROUPS * GROUP_BYTES;
    static constexpr int BYTES = CODE_BYTES + SCALE_BYTES * (1 + ZERO_POINT);
    // A thread dequantizes PART elements along K at a time: K_BLOCKS of 16, each the K of one instruction.
    static constexpr int PART = 64, PARTS = K / PART, K_BLOCKS = PART / 16, VECTORS = PART * BITS / 256;
    static_assert(GROUP % 16 == 0 && K % GROUP == 0, "whole blocks of K share a scale");

    // Twice the lower, or the upper, half of a word: for two neighbours of a row.
    static __device__ __forceinline__ unsigned twice(unsigned word, int half) {
        return __byte_perm(word, word, half ? 0x3232 : 0x1010);
    }

    // A thread's word of the pairs of rows: rows lane / 4 and eight more of the warp's 16.
    static __device__ __forceinline__ unsigned pair_of_rows(unsigned pairs) {
        return ld_shared<4>(pairs + (threadIdx.x % WARPGROUP / 32 * 8 + threadIdx.x % 32 / 4) * 4).bits;
    }

    // What a thread needs of the scales and zero points of a block: a word for each group along K.
    struct Scales {
        unsigned pairs[GROUPS], zero_pairs[ZERO_POINT ? GROUPS : 1];

        // Loads those of the block at a shared address.
        __device__ __forceinline__ void load(unsigned block) {
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) {
                pairs[group] = pair_of_rows(block + CODE_BYTES + group * GROUP_BYTES);
                if constexpr (ZERO_POINT)
                    zero_pairs[group] = pair_of_rows(block + CODE_BYTES + SCALE_BYTES + group * GROUP_BYTES);
            }
        }
    };

    // Whether all scales of BLOCKS blocks that follow each other are small: one answer for all warps, which read the
    // same words.
    template <int BLOCKS>
    static __device__ __forceinline__ bool has_small_scales(unsigned block) {
        static_assert(GROUP_BYTES == 32 * 4, "a word for each lane");
        if constexpr (ZERO_POINT) return false;
        unsigned large = 0;  // bits 15 and 31: a scale is at its type's limit or above it, or is no number
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) {
                const unsigned pairs = block + i * BYTES + CODE_BYTES + group * GROUP_BYTES;
                large |= (ld_shared<4>(pairs + threadIdx.x % 32 * 4).bits & 0x7fff7fff) + (0x80008000 - SMALL::LIMIT);
            }
        return __all_sync(0xffffffff, (large & 0x80008000) == 0);
    }

    // One thread's way through a part of a block: its codes, and factors and addends of the group that it is in.
    struct Part {
        unsigned words[VECTORS][4], factors[2], addends[2];

        // Loads the codes of part `part` of the block at a shared address.
        __device__ __forceinline__ void load(unsigned block, int part) {
#pragma unroll
            for (int i = 0; i < VECTORS; ++i) {
                const auto packet =
                    ld_shared<16>(block + (part * VECTORS + i) * VECTOR_BYTES + threadIdx.x % WARPGROUP * 16).bits;
                words[i][0] = packet.x;
                words[i][1] = packet.y;
                words[i][2] = packet.z;
                words[i][3] = packet.w;
            }
        }

        template <bool HAS_SMALL_SCALES>
        __device__ __forceinline__ void begin_group(const Scales& scales, int group) {
#pragma unroll
            for (int row = 0; row < 2; ++row) {
                const unsigned scale = twice(scales.pairs[group], row);
                if constexpr (HAS_SMALL_SCALES) {
                    factors[row] = PAIR::multiply(PAIR::multiply(scale, SMALL::FACTOR), SMALL::REST[row]);
                    addends[row] = PAIR::multiply(scale, SMALL::NEGATED_ZERO);
                } else {
                    factors[row] = scale;
                    if constexpr (ZERO_POINT) {
                        addends[row] = twice(scales.zero_pairs[group], row);
                    } else {
                        addends[row] = CODES::ZERO;
                    }
                }
            }
        }

        // The word that has the codes of register `i` of the fragment of k-block `k_block` at bits `bit_of(i)` and 16
        // more.
        __device__ __forceinline__ unsigned word(int k_block, int i) const {
            if constexpr (BITS == 4) return words[0][k_block] >> i / 2 * 8;
            return words[k_block / 2][k_block % 2 * 2 + i / 2] >> i % 2 * 8;
        }
        static __device__ constexpr int bit_of(int i) { return BITS == 4 ? i % 2 * 4 : 0; }

        // The fragment of k-block `k_block`, scale * (code - zero point), of 16-bit elements that are rounded once;
        // k-blocks come in order. PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16", matrix A: register i is
        // of row lane / 4 + 8 (i % 2).
        template <bool HAS_SMALL_SCALES>
        __device__ __forceinline__ void dequantize(unsigned (&fragment)[4], const Scales& scales, int part,
                                                   int k_block) {
            if (k_block == 0 || k_block * 16 % GROUP == 0)
                begin_group<HAS_SMALL_SCALES>(scales, (part * PART + k_block * 16) / GROUP);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if constexpr (HAS_SMALL_SCALES) {
                    const unsigned number = SMALL::number(word(k_block, i), i % 2);
                    fragment[i] = PAIR::multiply_add(number, factors[i % 2], addends[i % 2]);
                } else {
                    unsigned number = CODES::number(word(k_block, i) >> bit_of(i));
                    if constexpr (ZERO_POINT || !CODES::EXACT_WITHOUT_ZERO)
                        number = PAIR::subtract(number, addends[i % 2]);
                    fragment[i] = PAIR::multiply(number, factors[i % 2]);
                }
            }
        }
    };
};

}  // namespace warptile
