// wgmma-stream-k: the last wave of tiles rarely has a tile for every CTA. Here all CTAs share the K tiles of the last
// tiles evenly, and add partial accumulators through a workspace, always in the same order.
#pragma once

#include "tile/stream_k.cuh"
#include "tile/wgmma_epilogue.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_stream_k(const __grid_constant__ WgmmaStreamKParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr bool STORE_BY_TMA = CONFIG::STORE_BY_TMA;
    constexpr int STORE_WIDTH = CONFIG::STORE_WIDTH, STAGES = CONFIG::STAGES, GROUP = CONFIG::GROUP;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    constexpr int CONSUMERS = 2, ROWS = TILE::BM / CONSUMERS;
    using ACCUMULATORS = WgmmaAccumulators<OPERATION, TILE, ROWS / 64>;
    using EPILOGUE = WgmmaEpilogue<OPERATION, TILE, STORE_BY_TMA, STORE_WIDTH>;
    using MAINLOOP = WgmmaMainloop<OPERATION, TILE, STAGES, CONSUMERS * EPILOGUE::BYTES>;
    extern __shared__ __align__(1024) unsigned char memory[];
    MAINLOOP mainloop(memory);
    if (threadIdx.x == 0) mainloop.pipeline.init(CONSUMERS);
    __syncthreads();

    TileScheduler<TILE, 1, 1, GROUP, false> scheduler(gemm.m, gemm.n, gemm.k, params.stream_k_tiles, 0);
    WorkTile work;
    bool more = scheduler.next(work);  // here, before accumulators take most registers
    const int group = warpgroup_index();
    if (group == 0) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0)
            for (; more; more = scheduler.next(work))
                mainloop.load(params.map_a, params.map_b, work.row, work.column, gemm.k, work.first_k_tile,
                              work.first_k_tile + work.k_tiles);
    } else {
        setmaxnreg_inc<240>();
        const int consumer = group - 1;
        ACCUMULATORS accumulators;
        EPILOGUE epilogue{gemm, params.map_d, {mainloop.extra() + consumer * EPILOGUE::BYTES, 0}, group};
        for (; more; more = scheduler.next(work)) {
            // Otherwise the wgmmas seem to depend on additions to the accumulators, and the compiler serialises them.
            accumulators.zero();
            accumulators.fence_operands();
            mainloop.mma(accumulators, consumer * ROWS, work.k_tiles, [&](int stage) { mainloop.release(stage); });
            const PartialAccumulators<ACCUMULATORS> partial{params.partial_accumulators, params.flags, group};
            if (complete_stream_k_tile(accumulators, scheduler, work, partial,
                                       [&](int cta) { return cta * CONSUMERS + consumer; }))
                epilogue.store_all(accumulators, work.row + consumer * ROWS, work.column);
        }
        epilogue.finish();
    }
}

}  // namespace warptile
