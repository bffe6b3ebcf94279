// wmma-padded: PAD unused units at the end of each row in shared memory, so that consecutive rows start in different
// banks.
#pragma once

#include "tile/wmma_epilogue.cuh"
#include "tile/wmma_staging.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS)
    wmma_padded(const __grid_constant__ GemmParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    using WIDTHS = typename CONFIG::WIDTHS;
    constexpr int PAD = CONFIG::PAD;
    const GemmParams<OPERATION> gemm = params.values();
    const unsigned tiles_n = tiles_along(gemm.n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    __shared__ BlockMemory<OPERATION, TILE, PAD> memory;
    auto& stage = memory.stages[0];

    Accumulators<OPERATION, TILE> accumulators;
    accumulators.zero();

    for (int k_offset = 0; k_offset < gemm.k; k_offset += TILE::BK) {
        stage_operands<AsyncCopy, TILE, WIDTHS>(stage, gemm, row, column, k_offset);
        cp_async_commit_group();
        cp_async_wait_group<0>();
        __syncthreads();  // the stage is full
        multiply_stage(accumulators, stage);
        __syncthreads();  // the stage may be overwritten
    }
    store_accumulators(accumulators, memory.patches, gemm, row, column);
}

}  // namespace warptile
