// wgmma-cooperative: two warpgroups share a tile twice as large, so that each byte of B is multiplied twice as often. The
// warps that only ask for tiles give their registers to those that hold the sums.
#pragma once

#include "tile/wgmma_pipeline.cuh"
#include "tile/wgmma_store.cuh"

namespace warptile {

template <typename OPERATION, typename TILE, bool PAIRS, int STAGES>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_cooperative(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
                      const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
                      long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
                      typename OPERATION::SCALE beta, const __grid_constant__ TensorMap map_a,
                      const __grid_constant__ TensorMap map_b) {
    constexpr int CONSUMERS = 2, ROWS = TILE::BM / CONSUMERS;
    using PIPELINE = WgmmaPipeline<OPERATION, TILE, STAGES>;
    extern __shared__ __align__(1024) unsigned char memory[];
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const int tiles_n = tiles_along(n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    PIPELINE pipeline(memory);
    if (threadIdx.x == 0) pipeline.ring.init(CONSUMERS);
    __syncthreads();

    const int group = warpgroup();
    if (group == 0) {
        registers_down<24>();
        if (threadIdx.x == 0) pipeline.fill(map_a, map_b, row, column, gemm.k);
    } else {
        registers_up<240>();
        const int first_row = (group - 1) * ROWS;
        WgmmaAccumulators<OPERATION, TILE, ROWS / 64> accumulators;
        pipeline.multiply(accumulators, first_row, PIPELINE::steps(gemm.k), [&](int stage) { pipeline.release(stage); });
        store_directly<PAIRS>(accumulators, gemm, row + first_row, column);
    }
}

}  // namespace warptile
