// wmma-shared: a block of 128 x 128 brings its operands to shared memory once and all of its warps read them there.
#pragma once

#include "tile/epilogue.cuh"
#include "tile/staging.cuh"

namespace warptile {

// One tile for every problem: 64 bytes of depth (32 halves), eight warps that own 64 x 32 each, so that all of the
// block's fragments have an owner. Rows in shared memory are padded by 16 bytes (8 halves).
template <typename OPERATION>
using SharedBlock = Tile<128, 128, 64 / sizeof(typename OPERATION::ELEMENT), 64, 32>;

template <typename OPERATION>
__global__ void __launch_bounds__(SharedBlock<OPERATION>::THREADS)
    wmma_shared(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
                const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
                long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
                typename OPERATION::SCALE beta) {
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    using TILE = SharedBlock<OPERATION>;
    const unsigned tiles_n = tiles_along(n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    __shared__ BlockMemory<OPERATION, TILE, OPERATION::PAD_UNIT> memory;
    auto& stage = memory.stages[0];

    Accumulators<OPERATION, TILE> accumulators;
    accumulators.zero();

    for (int depth = 0; depth < gemm.k; depth += TILE::BK) {
        stage_operands<ScalarCopy, TILE, Widths<1, 1, 1>>(stage, gemm, row, column, depth);
        __syncthreads();  // the stage is full
        multiply_stage(accumulators, stage);
        __syncthreads();  // the stage may be overwritten
    }
    store_accumulators(accumulators, memory.patches, gemm, row, column);
}

}  // namespace warptile
