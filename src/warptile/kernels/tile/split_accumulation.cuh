// Products of operands that are split into two slices of 16 bits: three wgmmas for every four tiles that are loaded.
#pragma once

#include "ptx/mbarrier.cuh"
#include "ptx/warpgroup.cuh"
#include "tile/split_scale.cuh"
#include "tile/wgmma_operation.cuh"
#include "tile/wgmma_smem_tile.cuh"

namespace warptile {

// A stage in shared memory: both slices of A's tile, then both of B's. In global memory the slices of an operand are
// the two matrices of a batch, K-major.
template <typename OPERATION, typename TILE>
struct SplitStage {
    using A = WgmmaSmemTile<typename OPERATION::ELEMENT, TILE::BM, TILE::BK, true>;
    using B = WgmmaSmemTile<typename OPERATION::ELEMENT, TILE::BN, TILE::BK, true>;
    static constexpr int B_OFFSET = 2 * A::BYTES, BYTES = B_OFFSET + 2 * B::BYTES;

    // Starts the loads of the tiles at (row, column) and `k`; their bytes complete `full`. Of each operand the first
    // map is that of whole boxes, the second that of the box across its end. WHOLE: `rows` and `columns`, which are
    // inside D, are all of the tile's.
    template <bool WHOLE>
    static __device__ __forceinline__ void load(unsigned stage, const TensorMap (&maps_a)[2],
                                                const TensorMap (&maps_b)[2], int row, int column, int k, unsigned full,
                                                int rows, int columns) {
        mbarrier_arrive_expect_tx(full, WHOLE ? BYTES : 2 * (A::loaded_bytes(rows) + B::loaded_bytes(columns)));
#pragma unroll
        for (int slice = 0; slice < 2; ++slice) {
            const unsigned a = stage + slice * A::BYTES, b = stage + B_OFFSET + slice * B::BYTES;
            if constexpr (WHOLE) {
                A::template load<true>(a, maps_a[0], row, k, full, slice);
                B::template load<true>(b, maps_b[0], column, k, full, slice);
            } else {
                A::template load_inside<1, true>(a, maps_a, row, k, full, 0, 0, slice, rows);
                B::template load_inside<1, true>(b, maps_b, column, k, full, 0, 0, slice, columns);
            }
        }
    }
};

// A = A_high + 2^-11 A_low and B likewise: A B is nearly A_high B_high + 2^-11 (A_high B_low + A_low B_high), the
// *main* and the *cross* products. The tensor core truncates as it adds, so main products are promoted after every
// INTERVAL along K: added to float32 registers, which rounds to nearest. An error of cross products counts 2^-11 times
// as much, and they need no promotion.
template <typename OPERATION, typename TILE, int M64_BLOCKS, int INTERVAL>
struct SplitAccumulation {
    static constexpr int STAGES_OF_INTERVAL = INTERVAL > TILE::BK ? INTERVAL / TILE::BK : 1;
    static constexpr int PARTS = INTERVAL < TILE::BK ? TILE::BK / INTERVAL : 1;  // intervals of a stage
    using INSTRUCTION = Wgmma<typename OPERATION::ELEMENT, float, TILE::BN>;
    using STAGE = SplitStage<OPERATION, TILE>;
    static constexpr int K_BLOCKS = STAGE::A::K_BLOCKS / PARTS, REGISTERS = INSTRUCTION::REGISTERS;
    static_assert(STAGES_OF_INTERVAL * TILE::BK == INTERVAL * PARTS && K_BLOCKS > 0, "whole stages or parts of one");
    float main[M64_BLOCKS][REGISTERS], cross[M64_BLOCKS][REGISTERS];

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
#pragma unroll
            for (int i = 0; i < REGISTERS; ++i) cross[m64][i] = 0;
        // Or else the compiler takes the zeros for a part of the first wgmmas, and serialises them (C7515).
#pragma unroll
        for (int m64 = 0; m64 < M64_BLOCKS; ++m64) warpgroup_fence_operand(cross[m64]);
    }

    // Issues the wgmmas of a part of the stage at a shared address, rows from `first_row` of A on: main products as one
    // group, cross products as the next. Without `accumulate` main products overwrite those before.
    __device__ __forceinline__ void multiply(unsigned stage, int first_row, int part, bool accumulate) {
        const auto rows = STAGE::A::descriptor_offset(first_row, 0);
        const auto a_high = STAGE::A::descriptor(stage) + rows;
        const auto a_low = STAGE::A::descriptor(stage + STAGE::A::BYTES) + rows;
        const auto b_high = STAGE::B::descriptor(stage + STAGE::B_OFFSET);
        const auto b_low = STAGE::B::descriptor(stage + STAGE::B_OFFSET + STAGE::B::BYTES);
        wgmma_fence();
#pragma unroll
        for (int k_block = 0; k_block < K_BLOCKS; ++k_block)
#pragma unroll
            for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
                INSTRUCTION::template mma_async<false, false>(
                    main[m64], a_high + STAGE::A::descriptor_offset(64 * m64, part * K_BLOCKS + k_block),
                    b_high + STAGE::B::descriptor_offset(0, part * K_BLOCKS + k_block), accumulate || k_block > 0);
        wgmma_commit_group();
#pragma unroll
        for (int k_block = 0; k_block < K_BLOCKS; ++k_block)
#pragma unroll
            for (int m64 = 0; m64 < M64_BLOCKS; ++m64) {
                const auto a = STAGE::A::descriptor_offset(64 * m64, part * K_BLOCKS + k_block);
                const auto b = STAGE::B::descriptor_offset(0, part * K_BLOCKS + k_block);
                INSTRUCTION::template mma_async<false, false>(cross[m64], a_high + a, b_low + b, true);
                INSTRUCTION::template mma_async<false, false>(cross[m64], a_low + a, b_high + b, true);
            }
        wgmma_commit_group();
    }

    // Waits for the main products, while the last cross products run, and adds them to `accumulators`.
    template <typename ACCUMULATORS>
    __device__ __forceinline__ void promote(ACCUMULATORS& accumulators) {
        wgmma_wait_group<1>();
#pragma unroll
        for (int m64 = 0; m64 < M64_BLOCKS; ++m64) {
            warpgroup_fence_operand(main[m64]);
#pragma unroll
            for (int i = 0; i < REGISTERS; ++i) accumulators.c[m64][i] += main[m64][i];
        }
    }

    // Waits for all products and adds the cross sums.
    template <typename ACCUMULATORS>
    __device__ __forceinline__ void finish(ACCUMULATORS& accumulators) {
        wgmma_wait_group<0>();
#pragma unroll
        for (int m64 = 0; m64 < M64_BLOCKS; ++m64) {
            warpgroup_fence_operand(cross[m64]);
#pragma unroll
            for (int i = 0; i < REGISTERS; ++i)
                accumulators.c[m64][i] = __fmaf_rn(cross[m64][i], 0x1p-11f, accumulators.c[m64][i]);
        }
    }
};

}  // namespace warptile
