// Two-level accumulation of FP8: wgmma accumulates over short stretches of K, whose results are promoted to float32.
#pragma once

#include "tile/block_scale_factors.cuh"
#include "tile/wgmma_operation.cuh"
#include "tile/wgmma_smem_tile.cuh"

namespace warptile {

inline constexpr int PROMOTION_INTERVAL = 128;

// wgmma keeps 13 fraction bits of FP8 sums. Here each PROMOTION_INTERVAL along K of a stage is a group of wgmmas with
// accumulators of its own that begin at zero; these are then added to the tile's accumulators in float32, multiplied by
// factors where blocks of operands have scales. WIDTH_OF_PART columns of a tile are a warpgroup's. With two SETS of
// registers stages take turns with them: the next stage is multiplied while this one is promoted.
template <typename OPERATION, typename TILE, int M64_BLOCKS, int WIDTH_OF_PART = TILE::BN, int SETS_ = 1>
struct TwoLevelAccumulation {
    static constexpr int SETS = SETS_;
    static constexpr int PARTS = OPERATION::PROMOTED ? TILE::BK / PROMOTION_INTERVAL : 1;  // of a stage
    using INSTRUCTION = Wgmma<typename OPERATION::ELEMENT, typename OPERATION::MMA_ACCUMULATOR, WIDTH_OF_PART>;
    using STAGE = WgmmaStage<OPERATION, TILE>;
    static constexpr int K_BLOCKS = PROMOTION_INTERVAL / 32, REGISTERS = INSTRUCTION::REGISTERS;
    static_assert(SETS == 1 || PARTS == 1, "with two sets, a stage is one interval");
    typename INSTRUCTION::REGISTER c[SETS * PARTS][M64_BLOCKS][REGISTERS];

    // Gives all registers a value, where the compiler would take them for inputs of what is not executed.
    __device__ __forceinline__ void zero() {
#pragma unroll
        for (int part = 0; part < SETS * PARTS; ++part)
#pragma unroll
            for (int m64 = 0; m64 < M64_BLOCKS; ++m64) {
#pragma unroll
                for (int i = 0; i < REGISTERS; ++i) c[part][m64][i] = 0;
                warpgroup_fence_operand(c[part][m64]);
            }
    }

    // The instruction for the first WIDTH columns of a tile, and registers that it writes.
    template <int WIDTH>
    using Narrow = Wgmma<typename OPERATION::ELEMENT, typename OPERATION::MMA_ACCUMULATOR, WIDTH>;

    // Issues the wgmmas of the stage at a shared address, which write set SET: rows from `first_row` of A on, and WIDTH
    // columns from `first_column` of B on.
    template <int WIDTH = WIDTH_OF_PART, int SET = 0>
    __device__ __forceinline__ void multiply(unsigned stage, int first_row, int first_column = 0) {
        static_assert(TILE::BK % PROMOTION_INTERVAL == 0, "a stage is promoted in whole intervals");
        using NARROW = Narrow<WIDTH>;
        using REGISTERS_OF_WIDTH = typename NARROW::REGISTER(&)[NARROW::REGISTERS];
        const auto a = STAGE::A::descriptor(stage) + STAGE::A::descriptor_offset(first_row, 0);
        const auto b = STAGE::B::descriptor(stage + STAGE::B_OFFSET) + STAGE::B::descriptor_offset(first_column, 0);
        wgmma_fence();
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
#pragma unroll
            for (int k_block = part * K_BLOCKS; k_block < (part + 1) * K_BLOCKS; ++k_block)
#pragma unroll
                for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
                    NARROW::template mma_async<OPERATION::A_COLUMN_MAJOR, !OPERATION::B_COLUMN_MAJOR>(
                        reinterpret_cast<REGISTERS_OF_WIDTH>(c[SET + part][m64]),
                        a + STAGE::A::descriptor_offset(64 * m64, k_block), b + STAGE::B::descriptor_offset(0, k_block),
                        k_block > part * K_BLOCKS);
            wgmma_commit_group();
        }
    }

    // Waits for them and adds them to `accumulators`; calls `release` once the stage has been read. The wgmmas of LATER
    // stages that have been issued since go on.
    template <int WIDTH = WIDTH_OF_PART, typename ACCUMULATORS, typename RELEASE>
    __device__ __forceinline__ void promote(ACCUMULATORS& accumulators, const RELEASE& release) {
        NoFactors none;
        promote<WIDTH>(accumulators, none, release);
    }
    template <int WIDTH = WIDTH_OF_PART, int SET = 0, int LATER = 0, typename ACCUMULATORS, typename FACTORS,
              typename RELEASE>
    __device__ __forceinline__ void promote(ACCUMULATORS& accumulators, FACTORS& factors, const RELEASE& release) {
        promote_part<WIDTH, 0, SET, LATER>(accumulators, factors, release);
    }

  private:
    template <int WIDTH, int PART, int SET, int LATER, typename ACCUMULATORS, typename FACTORS, typename RELEASE>
    __device__ __forceinline__ void promote_part(ACCUMULATORS& accumulators, FACTORS& factors, const RELEASE& release) {
        factors.advance();
        wgmma_wait_group<LATER + PARTS - 1 - PART>();
#pragma unroll
        for (int m64 = 0; m64 < M64_BLOCKS; ++m64) warpgroup_fence_operand(c[SET + PART][m64]);
        if constexpr (PART + 1 == PARTS) release();
#pragma unroll
        for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
#pragma unroll
            for (int i = 0; i < Narrow<WIDTH>::REGISTERS; ++i)
                factors.template promote<ACCUMULATORS>(accumulators.c[m64][i], c[SET + PART][m64][i], m64, i);
        if constexpr (PART + 1 < PARTS) promote_part<WIDTH, PART + 1, SET, LATER>(accumulators, factors, release);
    }
};

}  // namespace warptile
