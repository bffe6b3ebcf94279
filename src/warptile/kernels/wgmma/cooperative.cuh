// wgmma-cooperative: two warpgroups share a tile twice as large, so that each byte of B is used twice as often.
// setmaxnreg moves registers from the producer's warps to the consumers, which hold the accumulators.
#pragma once

#include "tile/wgmma_direct_epilogue.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_cooperative(const __grid_constant__ WgmmaParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr bool STORE_PAIRS = CONFIG::STORE_PAIRS;
    constexpr int STAGES = CONFIG::STAGES;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    constexpr int CONSUMERS = 2, ROWS = TILE::BM / CONSUMERS;
    using MAINLOOP = WgmmaMainloop<OPERATION, TILE, STAGES>;
    extern __shared__ __align__(1024) unsigned char memory[];
    const int tiles_n = tiles_along(gemm.n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    MAINLOOP mainloop(memory);
    if (threadIdx.x == 0) mainloop.pipeline.init(CONSUMERS);
    __syncthreads();

    const int group = warpgroup_index();
    if (group == 0) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0) mainloop.load(params.map_a, params.map_b, row, column, gemm.k);
    } else {
        setmaxnreg_inc<240>();
        const int first_row = (group - 1) * ROWS;
        WgmmaAccumulators<OPERATION, TILE, ROWS / 64> accumulators;
        mainloop.mma(accumulators, first_row, MAINLOOP::k_tiles(gemm.k), [&](int stage) { mainloop.release(stage); });
        store_directly<STORE_PAIRS>(accumulators, gemm, row + first_row, column);
    }
}

}  // namespace warptile
