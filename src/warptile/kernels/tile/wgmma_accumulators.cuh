// A warpgroup's part of D in registers, and its products.
#pragma once

#include "tile/wgmma_operation.cuh"
#include "tile/wgmma_panels.cuh"

namespace warptile {

// BLOCKS blocks of 64 rows, each COLUMNS wide, as INSTRUCTION leaves them in registers; with SPREAD in `spread` order.
template <typename INSTRUCTION_, typename SUM_, int COLUMNS, int BLOCKS_, bool SPREAD = false>
struct WgmmaSums {
    using INSTRUCTION = INSTRUCTION_;
    using SUM = SUM_;
    static constexpr int BLOCKS = BLOCKS_, EIGHTS = COLUMNS / 8;
    static constexpr int REGISTERS = COLUMNS * sizeof(SUM) / 8;  // of a thread, for 64 rows
    typename INSTRUCTION::REGISTER c[BLOCKS][REGISTERS];

    __device__ __forceinline__ void zero() {
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
            for (int i = 0; i < REGISTERS; ++i) c[block][i] = 0;
    }

    // Adds what a register stands for.
    static __device__ __forceinline__ void add(typename INSTRUCTION::REGISTER& sum, typename INSTRUCTION::REGISTER other) {
        if constexpr (sizeof(SUM) == 2) {
            asm("add.rn.f16x2 %0, %0, %1;" : "+r"(sum) : "r"(other));
        } else {
            sum += other;
        }
    }
    __device__ __forceinline__ void add(const WgmmaSums& others) {
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
            for (int i = 0; i < REGISTERS; ++i) add(c[block][i], others.c[block][i]);
    }

    // Keeps the sums where they are while products are under way.
    __device__ __forceinline__ void pin_all() {
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) pin(c[block]);
    }

    static __device__ __forceinline__ int row_of(int row) { return spread<SPREAD>(row); }

    // Neighbouring sums: of a block of rows, columns 8 `eight` + 2 (lane % 4) and the next, row lane / 4 of the warp's 16,
    // or with `half` the row eight below. PTX ISA, "Register Fragments for wgmma.mma_async": matrix D.
    __device__ __forceinline__ void pair(int block, int eight, int half, SUM& left, SUM& right) const {
        if constexpr (sizeof(SUM) == 2) {
            union {
                unsigned word;
                SUM sums[2];
            } both = {c[block][2 * eight + half]};
            left = both.sums[0];
            right = both.sums[1];
        } else {
            left = c[block][4 * eight + 2 * half];
            right = c[block][4 * eight + 2 * half + 1];
        }
    }
};

// Sums of dense products with operands in stages; with ANY_START rows of A begin at any element.
template <typename OPERATION, typename TILE, int BLOCKS, bool ANY_START = false>
struct WgmmaAccumulators : WgmmaSums<Wgmma<typename OPERATION::ELEMENT, typename OPERATION::WITHIN, TILE::BN>,
                                     typename OPERATION::SUM, TILE::BN, BLOCKS, ANY_START> {
    static_assert(TILE::BM == 64 * BLOCKS || TILE::BM == 2 * 64 * BLOCKS, "one or two warpgroups, of blocks of 64 rows");
    using INSTRUCTION = Wgmma<typename OPERATION::ELEMENT, typename OPERATION::WITHIN, TILE::BN>;
    using STAGE = WgmmaStage<OPERATION, TILE, ANY_START>;
    // Sums of some of the columns.
    template <int COLUMNS>
    using Part = WgmmaSums<INSTRUCTION, typename OPERATION::SUM, COLUMNS, BLOCKS, ANY_START>;

    // Starts the products with the stage at a shared address, of rows from `first_row` of it on; a group of their own.
    // Unless they `add`, they begin the sums anew.
    __device__ __forceinline__ void multiply(unsigned stage, int first_row, bool add) {
        const unsigned long long a = STAGE::A::descriptor(stage) + STAGE::A::further(first_row, 0);
        const unsigned long long b = STAGE::B::descriptor(stage + STAGE::B_OFFSET);
        wgmma_fence();
#pragma unroll
        for (int slab = 0; slab < STAGE::A::SLABS; ++slab)
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block)
                INSTRUCTION::template multiply<OPERATION::A_COLUMN_MAJOR, !OPERATION::B_COLUMN_MAJOR>(
                    this->c[block], a + STAGE::A::further(64 * block, slab), b + STAGE::B::further(0, slab), slab > 0 || add);
        wgmma_commit_group();
    }

    // The same with A in registers: a group for each 16 of depth, during which the next one's fragments are loaded. At most
    // two groups are under way, for there are two sets of registers.
    template <typename READER>
    __device__ __forceinline__ void multiply(const READER& reader, unsigned stage, int first_row, bool add) {
        const unsigned long long b = STAGE::B::descriptor(stage + STAGE::B_OFFSET);
        unsigned a[2][BLOCKS][4];
#pragma unroll
        for (int slab = 0; slab < STAGE::A::SLABS; ++slab) {
            if (slab > 0) wgmma_wait_group<1>();
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block)
                reader.load(a[slab % 2][block], stage, first_row + 64 * block, slab);
            wgmma_fence();
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block)
                INSTRUCTION::template multiply<false, !OPERATION::B_COLUMN_MAJOR>(
                    this->c[block], a[slab % 2][block], b + STAGE::B::further(0, slab), slab > 0 || add);
            wgmma_commit_group();
        }
    }
};

}  // namespace warptile
