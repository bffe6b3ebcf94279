// wgmma-persistent: persistent CTAs, one for each SM, take one tile after the other in an order that reuses L2. While a
// tile is stored, the next one's operands are already being loaded.
#pragma once

#include "tile/tile_scheduler.cuh"
#include "tile/wgmma_direct_epilogue.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_persistent(const __grid_constant__ WgmmaParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr bool STORE_PAIRS = CONFIG::STORE_PAIRS;
    constexpr int STAGES = CONFIG::STAGES, GROUP = CONFIG::GROUP;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    constexpr int CONSUMERS = 2, ROWS = TILE::BM / CONSUMERS;
    using MAINLOOP = WgmmaMainloop<OPERATION, TILE, STAGES>;
    extern __shared__ __align__(1024) unsigned char memory[];
    MAINLOOP mainloop(memory);
    if (threadIdx.x == 0) mainloop.pipeline.init(CONSUMERS);
    __syncthreads();

    TileScheduler<TILE, 1, 1, GROUP, false> scheduler(gemm.m, gemm.n, gemm.k, 0, 0);
    WorkTile work;
    const int group = warpgroup_index();
    if (group == 0) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0)
            while (scheduler.next(work)) mainloop.load(params.map_a, params.map_b, work.row, work.column, gemm.k);
    } else {
        setmaxnreg_inc<240>();
        const int first_row = (group - 1) * ROWS;
        WgmmaAccumulators<OPERATION, TILE, ROWS / 64> accumulators;
        while (scheduler.next(work)) {
            mainloop.mma(accumulators, first_row, work.k_tiles, [&](int stage) { mainloop.release(stage); });
            store_directly<STORE_PAIRS>(accumulators, gemm, work.row + first_row, work.column);
        }
    }
}

}  // namespace warptile
