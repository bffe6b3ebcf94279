// wmma-shared: a block of 128 x 128 brings its operands to shared memory once and all of its warps read them there.
#pragma once

#include "tile/wmma_epilogue.cuh"
#include "tile/wmma_staging.cuh"

namespace warptile {

// One tile for every problem: 64 bytes of K (32 halves), eight warps that own 64 x 32 each, so that all of the
// block's fragments have an owner. Rows in shared memory are padded by 16 bytes (8 halves).
template <typename OPERATION>
using SharedBlock = Tile<128, 128, 64 / sizeof(typename OPERATION::ELEMENT), 64, 32>;

template <typename CONFIG>
__global__ void __launch_bounds__(SharedBlock<typename CONFIG::OPERATION>::THREADS)
    wmma_shared(const __grid_constant__ GemmParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    const GemmParams<OPERATION> gemm = params.values();
    using TILE = SharedBlock<OPERATION>;
    const unsigned tiles_n = tiles_along(gemm.n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    __shared__ BlockMemory<OPERATION, TILE, OPERATION::PAD_UNIT> memory;
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
