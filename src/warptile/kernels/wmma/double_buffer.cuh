// wmma-double-buffer: two sets of fragments, so that loads from shared memory overlap with MMAs within a stage.
#pragma once

#include "tile/wmma_epilogue.cuh"
#include "tile/wmma_staging.cuh"

namespace warptile {

// All k-blocks of a stage with two sets of fragments: while the tensor core works on one, the other is loaded.
template <int PAD, typename OPERATION, typename TILE>
__device__ __forceinline__ void multiply_stage_overlapped(Accumulators<OPERATION, TILE>& accumulators,
                                                          const Stage<OPERATION, TILE, PAD>& stage) {
    constexpr int K_BLOCKS = TILE::BK / OPERATION::K_BLOCK;
    static_assert(TILE::BK % OPERATION::K_BLOCK == 0, "a stage is a whole number of fragments deep");
    Fragments<OPERATION, TILE> fragments[2];
    fragments[0].load(stage, 0);
#pragma unroll
    for (int k_block = 0; k_block < K_BLOCKS; ++k_block) {
        if (k_block + 1 < K_BLOCKS) fragments[(k_block + 1) % 2].load(stage, (k_block + 1) * OPERATION::K_BLOCK);
        multiply(accumulators, fragments[k_block % 2]);
    }
}

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS)
    wmma_double_buffer(const __grid_constant__ GemmParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    using WIDTHS = typename CONFIG::WIDTHS;
    constexpr int PAD = CONFIG::PAD, STAGES = CONFIG::STAGES;
    const GemmParams<OPERATION> gemm = params.values();
    const unsigned tiles_n = tiles_along(gemm.n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    static_assert(STAGES >= 2, "a pipeline has a stage to fill beside the one that is read");
    __shared__ BlockMemory<OPERATION, TILE, PAD, STAGES> memory;

    Accumulators<OPERATION, TILE> accumulators;
    accumulators.zero();

    const int tiles_k = tiles_along(gemm.k, TILE::BK);
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
        if (ahead < tiles_k)
            stage_operands<AsyncCopy, TILE, WIDTHS>(memory.stages[ahead], gemm, row, column, ahead * TILE::BK);
        cp_async_commit_group();
    }
    for (int tile = 0; tile < tiles_k; ++tile) {
        cp_async_wait_group<STAGES - 2>();  // this thread's part of `tile` has arrived
        __syncthreads();  // all threads' parts have, and no thread reads the stage of `tile` - 1 any more
        const int next = tile + STAGES - 1;
        if (next < tiles_k)
            stage_operands<AsyncCopy, TILE, WIDTHS>(memory.stages[next % STAGES], gemm, row, column, next * TILE::BK);
        cp_async_commit_group();  // empty at the tail: the wait above counts groups, not tiles
        multiply_stage_overlapped(accumulators, memory.stages[tile % STAGES]);
    }
    __syncthreads();  // the memory of the stages becomes that of the patches
    store_accumulators(accumulators, memory.patches, gemm, row, column);
}

}  // namespace warptile
