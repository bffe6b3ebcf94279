// wmma-block: three levels of tiling as template parameters: block tile BM x BN x BK, warp tile WM x WN, fragment.
#pragma once

#include "tile/wmma_epilogue.cuh"
#include "tile/wmma_staging.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS)
    wmma_block(const __grid_constant__ GemmParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    const GemmParams<OPERATION> gemm = params.values();
    const unsigned tiles_n = tiles_along(gemm.n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    __shared__ BlockMemory<OPERATION, TILE> memory;
    auto& stage = memory.stages[0];

    Accumulators<OPERATION, TILE> accumulators;
    accumulators.zero();

    for (int k_offset = 0; k_offset < gemm.k; k_offset += TILE::BK) {
        stage_operands<ScalarCopy, TILE, Widths<1, 1, 1>>(stage, gemm, row, column, k_offset);
        __syncthreads();  // the stage is full
        multiply_stage(accumulators, stage);
        __syncthreads();  // the stage may be overwritten
    }
    store_accumulators(accumulators, memory.patches, gemm, row, column);
}

}  // namespace warptile
