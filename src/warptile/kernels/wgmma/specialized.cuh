// wgmma-specialized: warp specialization. A producer warp only loads tiles, as far ahead as the pipeline has stages; a
// consumer warpgroup only multiplies. mbarriers, which count bytes and arrivals, synchronise them.
#pragma once

#include "tile/wgmma_direct_epilogue.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(2 * WARPGROUP, 1)
    wgmma_specialized(const __grid_constant__ WgmmaParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr bool STORE_PAIRS = CONFIG::STORE_PAIRS;
    constexpr int STAGES = CONFIG::STAGES;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    using MAINLOOP = WgmmaMainloop<OPERATION, TILE, STAGES>;
    extern __shared__ __align__(1024) unsigned char memory[];
    const int tiles_n = tiles_along(gemm.n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    MAINLOOP mainloop(memory);
    if (threadIdx.x == 0) mainloop.pipeline.init(1);
    __syncthreads();

    if (warpgroup_index() == 0) {
        if (threadIdx.x == 0) mainloop.load(params.map_a, params.map_b, row, column, gemm.k);
    } else {
        WgmmaAccumulators<OPERATION, TILE, TILE::BM / 64> accumulators;
        mainloop.mma(accumulators, 0, MAINLOOP::k_tiles(gemm.k), [&](int stage) { mainloop.release(stage); });
        store_directly<STORE_PAIRS>(accumulators, gemm, row, column);
    }
}

}  // namespace warptile
