// wgmma-two-level: FP8 with the accuracy of float32. wgmma keeps 13 fraction bits of FP8 sums, so after every 128 of K
// its accumulators are promoted: added to others in float32 registers.
#pragma once

#include "tile/tile_scheduler.cuh"
#include "tile/two_level_accumulation.cuh"
#include "tile/wgmma_epilogue.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_two_level(const __grid_constant__ WgmmaStoreParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    static_assert(OPERATION::PROMOTED, "FP8 operands and float32 accumulators");
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
        auto& pipeline = mainloop.pipeline;
        auto& state = mainloop.state;
        WgmmaAccumulators<OPERATION, TILE, ROWS / 64> accumulators;
        TwoLevelAccumulation<OPERATION, TILE, ROWS / 64> intervals;
        EPILOGUE epilogue{gemm, params.map_d, {mainloop.extra() + consumer * EPILOGUE::BYTES, 0}, group};
        while (scheduler.next(work)) {
            accumulators.zero();
            for (int k_tile = 0; k_tile < work.k_tiles; ++k_tile) {
                pipeline.consumer_wait(state);
                intervals.multiply(pipeline.stage_address(state.stage), consumer * ROWS);
                intervals.promote(accumulators, [&] { mainloop.release(state.stage); });
                state.advance();
            }
            epilogue.store_all(accumulators, work.row + consumer * ROWS, work.column);
        }
        epilogue.finish();
    }
}

}  // namespace warptile
