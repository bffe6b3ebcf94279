// wgmma-store: the epilogue uses TMA too: stmatrix writes D to swizzled subtiles in shared memory, TMA stores them to
// global memory, and the next tile's mainloop runs meanwhile.
#pragma once

#include "tile/tile_scheduler.cuh"
#include "tile/wgmma_epilogue.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_store(const __grid_constant__ WgmmaStoreParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr bool STORE_BY_TMA = CONFIG::STORE_BY_TMA;
    constexpr int STORE_WIDTH = CONFIG::STORE_WIDTH, STAGES = CONFIG::STAGES, GROUP = CONFIG::GROUP;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    constexpr int CONSUMERS = 2, ROWS = TILE::BM / CONSUMERS;
    using EPILOGUE = WgmmaEpilogue<OPERATION, TILE, STORE_BY_TMA, STORE_WIDTH>;
    using MAINLOOP = WgmmaMainloop<OPERATION, TILE, STAGES, CONSUMERS * EPILOGUE::BYTES>;
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
        const int consumer = group - 1;
        WgmmaAccumulators<OPERATION, TILE, ROWS / 64> accumulators;
        EPILOGUE epilogue{gemm, params.map_d, {mainloop.extra() + consumer * EPILOGUE::BYTES, 0}, group};
        while (scheduler.next(work)) {
            mainloop.mma(accumulators, consumer * ROWS, work.k_tiles, [&](int stage) { mainloop.release(stage); });
            epilogue.store_all(accumulators, work.row + consumer * ROWS, work.column);
        }
        epilogue.finish();
    }
}

}  // namespace warptile
