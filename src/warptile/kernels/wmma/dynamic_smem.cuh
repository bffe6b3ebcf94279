// wmma-dynamic-smem: the pipeline is in dynamic shared memory, which may be larger than 48 KB: more stages, larger
// tiles.
#pragma once

#include "wmma/double_buffer.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS)
    wmma_dynamic_smem(const __grid_constant__ GemmParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    using WIDTHS = typename CONFIG::WIDTHS;
    constexpr int PAD = CONFIG::PAD, STAGES = CONFIG::STAGES;
    const GemmParams<OPERATION> gemm = params.values();
    const unsigned tiles_n = tiles_along(gemm.n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    static_assert(STAGES >= 2, "a pipeline has a stage to fill beside the one that is read");
    extern __shared__ __align__(128) unsigned char dynamic_memory[];  // as much as the launch asks for
    auto& memory = *reinterpret_cast<BlockMemory<OPERATION, TILE, PAD, STAGES>*>(dynamic_memory);

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
