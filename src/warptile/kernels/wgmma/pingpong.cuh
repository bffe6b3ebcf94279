// wgmma-pingpong: two consumer warpgroups alternate on tiles of their own: one runs its epilogue during the other's
// mainloop.
#pragma once

#include "tile/tile_scheduler.cuh"
#include "tile/wgmma_epilogue.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_pingpong(const __grid_constant__ WgmmaStoreParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr bool STORE_BY_TMA = CONFIG::STORE_BY_TMA;
    constexpr int STORE_WIDTH = CONFIG::STORE_WIDTH, STAGES = CONFIG::STAGES, GROUP = CONFIG::GROUP;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    constexpr int CONSUMERS = 2;
    using EPILOGUE = WgmmaEpilogue<OPERATION, TILE, STORE_BY_TMA, STORE_WIDTH>;
    using MAINLOOP = WgmmaMainloop<OPERATION, TILE, STAGES, CONSUMERS * EPILOGUE::BYTES>;
    extern __shared__ __align__(1024) unsigned char memory[];
    MAINLOOP mainloop(memory);
    const unsigned order_barriers =
        mainloop.pipeline.barriers + MAINLOOP::PIPELINE::BARRIER_BYTES;  // one for each consumer
    if (threadIdx.x == 0) {
        for (int consumer = 0; consumer < CONSUMERS; ++consumer)
            mbarrier_init(order_barriers + consumer * MBARRIER_BYTES, 1);
        mainloop.pipeline.init(1);
    }
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
        WgmmaAccumulators<OPERATION, TILE, TILE::BM / 64> accumulators;
        EPILOGUE epilogue{gemm, params.map_d, {mainloop.extra() + consumer * EPILOGUE::BYTES, 0}, group};
        for (int number = 0; scheduler.next(work); ++number) {
            if (number % CONSUMERS != consumer) {
                mainloop.state.advance(work.k_tiles);  // the other consumer's stages
                continue;
            }
            // The CTA's first tile does not wait; after it each consumer waits for the other's arrival.
            if (number > 0) mbarrier_wait(order_barriers + consumer * MBARRIER_BYTES, (number - 1) / CONSUMERS % 2);
            const auto release = [&](int stage) { mainloop.release(stage); };
            mainloop.mma_issue(accumulators, 0, work.k_tiles, release);
            // All wgmmas of this tile are issued: the other consumer's may follow.
            if (threadIdx.x % WARPGROUP == 0) mbarrier_arrive(order_barriers + (1 - consumer) * MBARRIER_BYTES);
            mainloop.mma_tail(accumulators, release);
            epilogue.store_all(accumulators, work.row, work.column);
        }
        epilogue.finish();
    }
}

}  // namespace warptile
