// wmma-vectorized: operands come from global memory 16 bytes at a time, where their alignment allows it.
#pragma once

#include "tile/epilogue.cuh"
#include "tile/staging.cuh"

namespace warptile {

template <typename OPERATION, typename TILE, typename WIDTHS>
__global__ void __launch_bounds__(TILE::THREADS)
    wmma_vectorized(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
                    const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
                    long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
                    typename OPERATION::SCALE beta) {
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const unsigned tiles_n = tiles_along(n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    __shared__ BlockMemory<OPERATION, TILE> memory;
    auto& stage = memory.stages[0];

    Accumulators<OPERATION, TILE> accumulators;
    accumulators.zero();

    for (int depth = 0; depth < gemm.k; depth += TILE::BK) {
        stage_operands<VectorCopy, TILE, WIDTHS>(stage, gemm, row, column, depth);
        __syncthreads();  // the stage is full
        multiply_stage(accumulators, stage);
        __syncthreads();  // the stage may be overwritten
    }
    store_accumulators(accumulators, memory.patches, gemm, row, column);
}

}  // namespace warptile
