// simt-half2: float16 on CUDA cores. One HFMA2 does two multiply-adds, on the two halves of a register, and
// accumulates in float16: twice the rate of float32 for sums that keep 11 bits.
#pragma once

#include <cuda_fp16.h>

#include "simt/operation.cuh"
#include "simt/register_tile.cuh"
#include "simt/operand_staging.cuh"

namespace warptile {

// Tiles as in simt-warptile, staged as in simt-shared: one stage, a barrier before its use and one after. A thread's
// accumulators are pairs of neighbours in a row of D; A's element is the same in both halves of its operand.
template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::BM / CONFIG::WM * (CONFIG::BN / CONFIG::WN) * 32, 1)
    simt_half2(const __grid_constant__ GemmParams<SimtOperation<CONFIG>> params) {
    constexpr bool B_COLUMN_MAJOR = CONFIG::B_COLUMN_MAJOR;
    constexpr int B_WIDTH = CONFIG::B_WIDTH, D_WIDTH = CONFIG::D_WIDTH, BM = CONFIG::BM, BN = CONFIG::BN,
                  BK = CONFIG::BK, WM = CONFIG::WM, WN = CONFIG::WN, TM = CONFIG::TM, TN = CONFIG::TN;
    const auto gemm = params.values();
    const int m = gemm.m, n = gemm.n, k = gemm.k;
    using TILE = RegisterTile<__half, BM, BN, WM, WN, TM, TN>;
    using A_OPERAND = TransposedOperand<__half, __half, BM, BK, TILE::THREADS>;
    using B_OPERAND = typename SelectOperand<B_COLUMN_MAJOR, __half, __half, BN, BK, TILE::THREADS, B_WIDTH>::type;
    __shared__ __align__(16) __half a_tile[A_OPERAND::ELEMENTS];
    __shared__ __align__(16) __half b_tile[B_OPERAND::ELEMENTS];

    const BlockOrigin origin = BlockOrigin::grouped<BM, BN, 8>(m, n, blockIdx.x);
    A_OPERAND a_operand(gemm.a, gemm.lda, origin.row, m);
    B_OPERAND b_operand(gemm.b, gemm.ldb, origin.column, n);

    __half2 accumulators[TM][TN / 2] = {};
    const int tiles = tiles_along(k, BK), ragged = k - (tiles - 1) * BK;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile == 0) {  // the ragged tile comes first, all the others are whole
            a_operand.template stage<false>(a_tile, ragged);
            b_operand.template stage<false>(b_tile, ragged);
        } else {
            a_operand.template stage<true>(a_tile, BK);
            b_operand.template stage<true>(b_tile, BK);
        }
        commit_copies();
        wait_for_copies<0>();
        __syncthreads();
#pragma unroll
        for (int l = 0; l < BK; ++l) {
            __half a_fragment[TM], b_fragment[TN];
            TILE::template load<TILE::LANES_M>(a_fragment, a_tile + l * A_OPERAND::PITCH + TILE::first_row());
            TILE::template load<TILE::LANES_N>(b_fragment, b_tile + l * B_OPERAND::PITCH + TILE::first_column());
#pragma unroll
            for (int j = 0; j < TN; j += 2) {
                const __half2 b_pair = __halves2half2(b_fragment[j], b_fragment[j + 1]);
#pragma unroll
                for (int i = 0; i < TM; ++i)
                    accumulators[i][j / 2] = __hfma2(__half2half2(a_fragment[i]), b_pair, accumulators[i][j / 2]);
            }
        }
        __syncthreads();
    }

    __half elements[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; j += 2) {
            elements[i][j] = __low2half(accumulators[i][j / 2]);
            elements[i][j + 1] = __high2half(accumulators[i][j / 2]);
        }
    store_registers<TILE, D_WIDTH>(elements, gemm, origin.row + TILE::first_row(),
                                   origin.column + TILE::first_column());
}

}  // namespace warptile
