// wgmma-tma: TMA brings tiles into shared memory, swizzled, as before; a warpgroup multiplies them there with wgmma,
// without fragments.
#pragma once

#include "tile/wgmma_direct_epilogue.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(WARPGROUP)
    wgmma_tma(const __grid_constant__ WgmmaParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr bool STORE_PAIRS = CONFIG::STORE_PAIRS;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    using STAGE = WgmmaStage<OPERATION, TILE>;
    extern __shared__ __align__(1024) unsigned char memory[];
    const int tiles_n = tiles_along(gemm.n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    const unsigned stage = shared_address(memory), full = stage + STAGE::BYTES;
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
    }
    __syncthreads();

    WgmmaAccumulators<OPERATION, TILE, TILE::BM / 64> accumulators;
    const int k_tiles = max(1, static_cast<int>(tiles_along(gemm.k, TILE::BK)));
    const int outside = gemm.k > 0 ? 0 : TILE::BK;  // K = 0: one K tile of zeros, from outside the matrices
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect_tx(full, STAGE::BYTES);
            STAGE::A::load(stage, params.map_a, row, k_tile * TILE::BK + outside, full);
            STAGE::B::load(stage + STAGE::B_OFFSET, params.map_b, column, k_tile * TILE::BK + outside, full);
        }
        mbarrier_wait(full, k_tile % 2);
        accumulators.multiply(stage, 0, k_tile > 0);
        wgmma_wait_group<0>();
        accumulators.fence_operands();
        __syncthreads();  // all warps have read the stage: it may be filled again
    }
    store_directly<STORE_PAIRS>(accumulators, gemm, row, column);
}

}  // namespace warptile
