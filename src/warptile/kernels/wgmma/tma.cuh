// wgmma-tma: one thread asks for whole tiles, the copy engine brings them, swizzled, and a warpgroup multiplies them where
// they lie.
#pragma once

#include "tile/wgmma_pipeline.cuh"
#include "tile/wgmma_store.cuh"

namespace warptile {

template <typename OPERATION, typename TILE, bool PAIRS>
__global__ void __launch_bounds__(WARPGROUP)
    wgmma_tma(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
              const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
              long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
              typename OPERATION::SCALE beta, const __grid_constant__ TensorMap map_a,
              const __grid_constant__ TensorMap map_b) {
    using STAGE = WgmmaStage<OPERATION, TILE>;
    extern __shared__ __align__(1024) unsigned char memory[];
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const int tiles_n = tiles_along(n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    const unsigned stage = shared_address(memory), full = stage + STAGE::BYTES;
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
    }
    __syncthreads();

    WgmmaAccumulators<OPERATION, TILE, TILE::BM / 64> accumulators;
    const int steps = max(1, static_cast<int>(tiles_along(gemm.k, TILE::BK)));
    const int beyond = gemm.k > 0 ? 0 : TILE::BK;  // no depth: one step of zeros, from outside the matrices
    for (int step = 0; step < steps; ++step) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect(full, STAGE::BYTES);
            STAGE::A::load(stage, map_a, row, step * TILE::BK + beyond, full);
            STAGE::B::load(stage + STAGE::B_OFFSET, map_b, column, step * TILE::BK + beyond, full);
        }
        mbarrier_wait(full, step % 2);
        accumulators.multiply(stage, 0, step > 0);
        wgmma_wait_group<0>();
        accumulators.pin_all();
        __syncthreads();  // all warps have read the stage: it may be filled again
    }
    store_directly<PAIRS>(accumulators, gemm, row, column);
}

}  // namespace warptile
