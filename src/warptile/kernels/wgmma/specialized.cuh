// wgmma-specialized: a warp does nothing but ask for tiles, as far ahead as a ring of stages has room; a warpgroup does
// nothing but multiply. Barriers that count bytes and arrivals go between them.
#pragma once

#include "tile/wgmma_pipeline.cuh"
#include "tile/wgmma_store.cuh"

namespace warptile {

template <typename OPERATION, typename TILE, bool PAIRS, int STAGES>
__global__ void __launch_bounds__(2 * WARPGROUP, 1)
    wgmma_specialized(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
                      const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
                      long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
                      typename OPERATION::SCALE beta, const __grid_constant__ TensorMap map_a,
                      const __grid_constant__ TensorMap map_b) {
    using PIPELINE = WgmmaPipeline<OPERATION, TILE, STAGES>;
    extern __shared__ __align__(1024) unsigned char memory[];
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const int tiles_n = tiles_along(n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    PIPELINE pipeline(memory);
    if (threadIdx.x == 0) pipeline.ring.init(1);
    __syncthreads();

    if (warpgroup() == 0) {
        if (threadIdx.x == 0) pipeline.fill(map_a, map_b, row, column, gemm.k);
    } else {
        WgmmaAccumulators<OPERATION, TILE, TILE::BM / 64> accumulators;
        pipeline.multiply(accumulators, 0, PIPELINE::steps(gemm.k), [&](int stage) { pipeline.release(stage); });
        store_directly<PAIRS>(accumulators, gemm, row, column);
    }
}

}  // namespace warptile
