// A warpgroup's accumulators and the wgmma instructions that add to them.
#pragma once

#include "tile/wgmma_operation.cuh"
#include "tile/wgmma_smem_tile.cuh"

namespace warptile {

// M64_BLOCKS blocks of 64 rows, each COLUMNS wide, in the registers in which INSTRUCTION leaves them. Along N the
// layout repeats every eight columns (an *n8 block*). INTERLEAVED: rows are in the order of `block_row`.
template <typename INSTRUCTION_, typename ACC_ELEMENT_, int COLUMNS, int M64_BLOCKS_, bool INTERLEAVED = false>
struct AccumulatorTile {
    using INSTRUCTION = INSTRUCTION_;
    using ACC_ELEMENT = ACC_ELEMENT_;
    static constexpr int M64_BLOCKS = M64_BLOCKS_, N8_BLOCKS = COLUMNS / 8;
    static constexpr int REGISTERS = COLUMNS * sizeof(ACC_ELEMENT) / 8;  // of a thread, for 64 rows
    typename INSTRUCTION::REGISTER c[M64_BLOCKS][REGISTERS];

    __device__ __forceinline__ void zero() { zero_from<0>(); }

    // Zeros the columns from FIRST on.
    template <int FIRST>
    __device__ __forceinline__ void zero_from() {
#pragma unroll
        for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
#pragma unroll
            for (int i = FIRST * sizeof(ACC_ELEMENT) / 8; i < REGISTERS; ++i) c[m64][i] = 0;
    }

    // Zeros what lies outside of the first `rows` rows and `columns` columns.
    __device__ __forceinline__ void zero_outside(int rows, int columns) {
        constexpr int OF_PAIR = sizeof(ACC_ELEMENT) / 2;  // registers of a pair of neighbouring columns
        const int thread = threadIdx.x % WARPGROUP;
        if (rows >= 64 * M64_BLOCKS && columns >= 8 * N8_BLOCKS) return;
#pragma unroll
        for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
#pragma unroll
            for (int i = 0; i < REGISTERS; ++i) {
                const int pair = i / OF_PAIR, n8 = pair / 2, half = pair % 2;
                const int row = 64 * m64 + row_of(16 * (thread / 32) + 8 * half + thread % 32 / 4);
                const int column = 8 * n8 + thread % 4 * 2 + i % OF_PAIR;
                if (row >= rows || column >= columns) {
                    c[m64][i] = 0;
                } else if (OF_PAIR == 1 && column + 1 >= columns) {
                    c[m64][i] = static_cast<unsigned>(c[m64][i]) & 0xffff;
                }
            }
    }

    // Adds one register to another: one number, or two of float16.
    static __device__ __forceinline__ void add(typename INSTRUCTION::REGISTER& accumulator,
                                               typename INSTRUCTION::REGISTER other) {
        if constexpr (sizeof(ACC_ELEMENT) == 2) {
            asm("add.rn.f16x2 %0, %0, %1;" : "+r"(accumulator) : "r"(other));
        } else {
            accumulator += other;
        }
    }
    __device__ __forceinline__ void add(const AccumulatorTile& other) {
#pragma unroll
        for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
#pragma unroll
            for (int i = 0; i < REGISTERS; ++i) add(c[m64][i], other.c[m64][i]);
    }

    // Keeps the compiler from moving accumulators to other registers while asynchronous wgmmas write them.
    __device__ __forceinline__ void fence_operands() {
#pragma unroll
        for (int m64 = 0; m64 < M64_BLOCKS; ++m64) warpgroup_fence_operand(c[m64]);
    }

    static __device__ __forceinline__ int row_of(int row) { return block_row<INTERLEAVED>(row); }

    // Two neighbouring elements of D in a block of 64 rows: columns 8 `n8` + 2 (lane % 4) and the next; row lane / 4 of
    // the warp's 16, or with `half` the row eight below. PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16",
    // matrix D.
    __device__ __forceinline__ void pair(int m64, int n8, int half, ACC_ELEMENT& left, ACC_ELEMENT& right) const {
        if constexpr (sizeof(ACC_ELEMENT) == 2) {
            union {
                unsigned word;
                ACC_ELEMENT elements[2];
            } both = {c[m64][2 * n8 + half]};
            left = both.elements[0];
            right = both.elements[1];
        } else {
            left = c[m64][4 * n8 + 2 * half];
            right = c[m64][4 * n8 + 2 * half + 1];
        }
    }
};

// Accumulators of dense GEMMs whose operands are in stages: of WIDTH_OF_PART columns of a tile.
template <typename OPERATION, typename TILE, int M64_BLOCKS, bool UNALIGNED_A = false, int WIDTH_OF_PART = TILE::BN>
struct WgmmaAccumulators
    : AccumulatorTile<Wgmma<typename OPERATION::ELEMENT, typename OPERATION::MMA_ACCUMULATOR, WIDTH_OF_PART>,
                      typename OPERATION::ACC_ELEMENT, WIDTH_OF_PART, M64_BLOCKS, UNALIGNED_A> {
    static_assert(TILE::BM == 64 * M64_BLOCKS || (TILE::BM == 2 * 64 * M64_BLOCKS && TILE::BN == WIDTH_OF_PART),
                  "warpgroups share the rows or the columns");
    using INSTRUCTION = Wgmma<typename OPERATION::ELEMENT, typename OPERATION::MMA_ACCUMULATOR, WIDTH_OF_PART>;
    using STAGE = WgmmaStage<OPERATION, TILE, UNALIGNED_A>;
    // Accumulators of some of the columns.
    template <int COLUMNS>
    using Part = AccumulatorTile<INSTRUCTION, typename OPERATION::ACC_ELEMENT, COLUMNS, M64_BLOCKS, UNALIGNED_A>;

    // Issues the wgmmas of the stage at a shared address, rows from `first_row` of A and columns from `first_column` of
    // B on, as one group. Without `accumulate` they overwrite the accumulators. WIDTH: of the first columns alone;
    // K_BLOCKS: of the first blocks of K alone.
    template <int WIDTH = WIDTH_OF_PART, int K_BLOCKS = STAGE::A::K_BLOCKS>
    __device__ __forceinline__ void multiply(unsigned stage, int first_row, bool accumulate, int first_column = 0) {
        using NARROW = Wgmma<typename OPERATION::ELEMENT, typename OPERATION::MMA_ACCUMULATOR, WIDTH>;
        using REGISTERS_OF_WIDTH = typename NARROW::REGISTER(&)[NARROW::REGISTERS];
        const unsigned long long a = STAGE::A::descriptor(stage) + STAGE::A::descriptor_offset(first_row, 0);
        const unsigned long long b =
            STAGE::B::descriptor(stage + STAGE::B_OFFSET) + STAGE::B::descriptor_offset(first_column, 0);
        wgmma_fence();
#pragma unroll
        for (int k_block = 0; k_block < K_BLOCKS; ++k_block)
#pragma unroll
            for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
                NARROW::template mma_async<OPERATION::A_COLUMN_MAJOR, !OPERATION::B_COLUMN_MAJOR>(
                    reinterpret_cast<REGISTERS_OF_WIDTH>(this->c[m64]),
                    a + STAGE::A::descriptor_offset(64 * m64, k_block), b + STAGE::B::descriptor_offset(0, k_block),
                    k_block > 0 || accumulate);
        wgmma_commit_group();
    }

    // The same with A in registers: one group for each block of K, while the next block's fragments are loaded. There
    // are two sets of registers, so that at most two groups are in flight.
    template <typename FRAGMENT_LOADER>
    __device__ __forceinline__ void multiply(const FRAGMENT_LOADER& loader, unsigned stage, int first_row,
                                             bool accumulate) {
        const unsigned long long b = STAGE::B::descriptor(stage + STAGE::B_OFFSET);
        unsigned a[2][M64_BLOCKS][4];
#pragma unroll
        for (int k_block = 0; k_block < STAGE::A::K_BLOCKS; ++k_block) {
            if (k_block > 0) wgmma_wait_group<1>();
#pragma unroll
            for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
                loader.load(a[k_block % 2][m64], stage, first_row + 64 * m64, k_block);
            wgmma_fence();
#pragma unroll
            for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
                INSTRUCTION::template mma_async<false, !OPERATION::B_COLUMN_MAJOR>(
                    this->c[m64], a[k_block % 2][m64], b + STAGE::B::descriptor_offset(0, k_block),
                    k_block > 0 || accumulate);
            wgmma_commit_group();
        }
    }
};

}  // namespace warptile
