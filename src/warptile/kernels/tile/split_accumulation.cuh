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

    // Starts the loads of the tiles at (row, column) and `k`; their bytes complete `full`.
    static __device__ __forceinline__ void load(unsigned stage, const TensorMap& map_a, const TensorMap& map_b, int row,
                                                int column, int k, unsigned full) {
        mbarrier_arrive_expect_tx(full, BYTES);
#pragma unroll
        for (int slice = 0; slice < 2; ++slice) {
            A::template load<true>(stage + slice * A::BYTES, map_a, row, k, full, slice);
            B::template load<true>(stage + B_OFFSET + slice * B::BYTES, map_b, column, k, full, slice);
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

// Float32 operands as the caller gave them, and the exponents of their lines.
struct SplitSource {
    const float* data;
    const int* exponents;
    long long line_stride, k_stride;

    // Whether lines `first` to `first` + COUNT - 1, those before `end`, are all split. All lanes of a warp call it.
    template <int COUNT>
    __device__ __forceinline__ bool all_split(int first, int end) const {
        bool marked = false;
#pragma unroll
        for (int i = threadIdx.x % 32; i < COUNT; i += 32)
            if (first + i < end) marked |= exponents[first + i] == CANNOT_SPLIT;
        return !__any_sync(0xffffffff, marked);
    }
};

// Where a thread's accumulators are in the part of D that begins at (row, column): PTX ISA, "Register Fragments for
// wgmma.mma_async.m64nNk16", matrix D.
struct AccumulatorPosition {
    int row, column;

    __device__ __forceinline__ AccumulatorPosition(int first_row, int first_column)
        : row(first_row + threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4),
          column(first_column + threadIdx.x % 4 * 2) {}
};

// Undoes the scales of rows and columns.
template <typename ACCUMULATORS, typename GEMM>
__device__ __forceinline__ void undo_scales(ACCUMULATORS& accumulators, const SplitSource& a, const SplitSource& b,
                                            const GEMM& gemm, int first_row, int first_column) {
    const AccumulatorPosition first(first_row, first_column);
    int of_rows[ACCUMULATORS::M64_BLOCKS][2];
#pragma unroll
    for (int m64 = 0; m64 < ACCUMULATORS::M64_BLOCKS; ++m64)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first.row + 64 * m64 + 8 * half;
            of_rows[m64][half] = row < gemm.m ? a.exponents[row] : 0;
        }
#pragma unroll
    for (int n8 = 0; n8 < ACCUMULATORS::N8_BLOCKS; ++n8)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int column = first.column + 8 * n8 + j;
            const int of_column = column < gemm.n ? b.exponents[column] : 0;
#pragma unroll
            for (int m64 = 0; m64 < ACCUMULATORS::M64_BLOCKS; ++m64)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float& c = accumulators.c[m64][4 * n8 + 2 * half + j];
                    c = scaled_down(c, of_rows[m64][half] + of_column);
                }
        }
}

// The same elements in float32, by fused multiply-adds along K: for tiles with lines that cannot be split. Slow, as
// nothing is staged in shared memory. Rows and columns past the end repeat the last one.
template <typename ACCUMULATORS, typename GEMM>
__device__ __forceinline__ void multiply_unsplit(ACCUMULATORS& accumulators, const SplitSource& a, const SplitSource& b,
                                                 const GEMM& gemm, int first_row, int first_column) {
    const AccumulatorPosition first(first_row, first_column);
    accumulators.zero();
    for (int k = 0; k < gemm.k; ++k) {
#pragma unroll
        for (int m64 = 0; m64 < ACCUMULATORS::M64_BLOCKS; ++m64) {
            float of_rows[2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
                of_rows[half] =
                    a.data[min(first.row + 64 * m64 + 8 * half, gemm.m - 1) * a.line_stride + k * a.k_stride];
#pragma unroll
            for (int n8 = 0; n8 < ACCUMULATORS::N8_BLOCKS; ++n8)
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const float of_column =
                        b.data[min(first.column + 8 * n8 + j, gemm.n - 1) * b.line_stride + k * b.k_stride];
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        float& c = accumulators.c[m64][4 * n8 + 2 * half + j];
                        c = __fmaf_rn(of_rows[half], of_column, c);
                    }
                }
        }
    }
}

}  // namespace warptile
