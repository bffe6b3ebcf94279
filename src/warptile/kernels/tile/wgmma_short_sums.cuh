// Exact sums of 8-bit floats.
#pragma once

#include "tile/wgmma_operation.cuh"
#include "tile/wgmma_panels.cuh"

namespace warptile {

// The instruction's sums of 8-bit floats are short. Those of each PROMOTED_DEPTH of a stage begin anew, in a group and
// registers of their own, and are added to the tile's in float32.
template <typename OPERATION, typename TILE, int BLOCKS>
struct ShortSums {
    static constexpr int PROMOTED_DEPTH = 128;
    static constexpr int PARTS = OPERATION::PROMOTED ? TILE::BK / PROMOTED_DEPTH : 1;
    using INSTRUCTION = Wgmma<typename OPERATION::ELEMENT, typename OPERATION::WITHIN, TILE::BN>;
    using STAGE = WgmmaStage<OPERATION, TILE>;
    static constexpr int SLABS = PROMOTED_DEPTH / 32, REGISTERS = INSTRUCTION::REGISTERS;
    typename INSTRUCTION::REGISTER c[PARTS][BLOCKS][REGISTERS];

    // Starts the products with the stage at a shared address, of rows from `first_row` of it on.
    __device__ __forceinline__ void multiply(unsigned stage, int first_row) {
        static_assert(TILE::BK % PROMOTED_DEPTH == 0, "a stage has whole short sums");
        const auto a = STAGE::A::descriptor(stage) + STAGE::A::further(first_row, 0);
        const auto b = STAGE::B::descriptor(stage + STAGE::B_OFFSET);
        wgmma_fence();
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
#pragma unroll
            for (int slab = part * SLABS; slab < (part + 1) * SLABS; ++slab)
#pragma unroll
                for (int block = 0; block < BLOCKS; ++block)
                    INSTRUCTION::template multiply<OPERATION::A_COLUMN_MAJOR, !OPERATION::B_COLUMN_MAJOR>(
                        c[part][block], a + STAGE::A::further(64 * block, slab), b + STAGE::B::further(0, slab),
                        slab > part * SLABS);
            wgmma_commit_group();
        }
    }

    // Waits for them and adds them to `sums`, calling `release` when the stage has been read.
    template <typename SUMS, typename RELEASE>
    __device__ __forceinline__ void add_to(SUMS& sums, const RELEASE& release) {
        add_part<0>(sums, release);
    }

private:
    template <int PART, typename SUMS, typename RELEASE>
    __device__ __forceinline__ void add_part(SUMS& sums, const RELEASE& release) {
        wgmma_wait_group<PARTS - 1 - PART>();
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) pin(c[PART][block]);
        if constexpr (PART + 1 == PARTS) release();
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
            for (int i = 0; i < REGISTERS; ++i) SUMS::add(sums.c[block][i], c[PART][block][i]);
        if constexpr (PART + 1 < PARTS) add_part<PART + 1>(sums, release);
    }
};

}  // namespace warptile
