// wmma-double-buffer: two sets of fragments, so that loads from shared memory and products overlap within a stage.
#pragma once

#include "tile/epilogue.cuh"
#include "tile/staging.cuh"

namespace warptile {

// The whole depth of a stage with two sets of fragments: while the tensor core works on one, the other is loaded.
template <int PAD, typename OPERATION, typename TILE>
__device__ __forceinline__ void multiply_stage_overlapped(Accumulators<OPERATION, TILE>& accumulators,
                                                          const Stage<OPERATION, TILE, PAD>& stage) {
    constexpr int STEPS = TILE::BK / OPERATION::STEP;
    static_assert(TILE::BK % OPERATION::STEP == 0, "a stage is a whole number of fragments deep");
    Fragments<OPERATION, TILE> fragments[2];
    fragments[0].load(stage, 0);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        if (step + 1 < STEPS) fragments[(step + 1) % 2].load(stage, (step + 1) * OPERATION::STEP);
        multiply(accumulators, fragments[step % 2]);
    }
}

template <typename OPERATION, typename TILE, typename WIDTHS, int PAD, int STAGES>
__global__ void __launch_bounds__(TILE::THREADS)
    wmma_double_buffer(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
                       const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
                       long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
                       typename OPERATION::SCALE beta) {
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const unsigned tiles_n = tiles_along(n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    static_assert(STAGES >= 2, "a ring has a stage to fill beside the one that is read");
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
        __syncthreads();                    // everybody's has, and nobody reads the stage of `tile` - 1 any more
        const int next = tile + STAGES - 1;
        if (next < tiles_k)
            stage_operands<AsyncCopy, TILE, WIDTHS>(memory.stages[next % STAGES], gemm, row, column, next * TILE::BK);
        cp_async_commit_group();  // empty at the tail: the wait above counts groups, not tiles
        multiply_stage_overlapped(accumulators, memory.stages[tile % STAGES]);
    }
    __syncthreads();  // the stages turn into patches
    store_accumulators(accumulators, memory.patches, gemm, row, column);
}

}  // namespace warptile
