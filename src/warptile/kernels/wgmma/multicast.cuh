// wgmma-multicast: two CTAs with tiles below each other need the same columns of B. As a cluster they load one half
// each, and TMA multicasts it: what is read once is written to the shared memory of both.
#pragma once

#include "ptx/cluster.cuh"
#include "tile/tile_scheduler.cuh"
#include "tile/wgmma_direct_epilogue.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_multicast(const __grid_constant__ WgmmaParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr bool STORE_PAIRS = CONFIG::STORE_PAIRS;
    constexpr int STAGES = CONFIG::STAGES, GROUP = CONFIG::GROUP;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    constexpr int CONSUMERS = 2, ROWS = TILE::BM / CONSUMERS, CTAS = 2;
    constexpr unsigned short BOTH = (1 << CTAS) - 1;
    using MAINLOOP = WgmmaMainloop<OPERATION, TILE, STAGES>;
    using STAGE = typename MAINLOOP::STAGE;
    extern __shared__ __align__(1024) unsigned char memory[];
    const int rank = cluster_ctarank();
    MAINLOOP mainloop(memory);
    if (threadIdx.x == 0) mainloop.pipeline.init(CONSUMERS * CTAS);
    cluster_sync_relaxed();  // the other CTA's barriers are initialised

    TileScheduler<TILE, CTAS, 1, GROUP, false> scheduler(gemm.m, gemm.n, gemm.k, 0, rank);
    WorkTile work;
    const int group = warpgroup_index();
    auto& pipeline = mainloop.pipeline;
    auto& state = mainloop.state;
    if (group == 0) {
        setmaxnreg_dec<24>();
        const int outside = gemm.k > 0 ? 0 : TILE::BK;
        while (threadIdx.x == 0 && scheduler.next(work)) {
            for (int k_tile = 0; k_tile < work.k_tiles; ++k_tile) {
                // The stage is empty in both CTAs; it is full once all bytes have arrived, the other CTA's share too.
                pipeline.producer_acquire(state);
                const unsigned stage = pipeline.stage_address(state.stage), full = pipeline.full_barrier(state.stage);
                const int k_offset = k_tile * TILE::BK + outside;
                mbarrier_arrive_expect_tx(full, STAGE::BYTES);
                STAGE::A::load(stage, params.map_a, work.row, k_offset, full);
                STAGE::B::template load_multicast<CTAS>(stage + STAGE::B_OFFSET, params.map_b, work.column, k_offset,
                                                        full, rank, BOTH);
                state.advance();
            }
        }
    } else {
        setmaxnreg_inc<240>();
        const int first_row = (group - 1) * ROWS;
        WgmmaAccumulators<OPERATION, TILE, ROWS / 64> accumulators;
        // Two threads arrive, at one CTA's barrier each.
        const auto release = [&](int stage) {
            if (threadIdx.x % WARPGROUP < CTAS)
                mbarrier_arrive_remote(pipeline.empty_barrier(stage), threadIdx.x % WARPGROUP);
        };
        while (scheduler.next(work)) {
            mainloop.mma(accumulators, first_row, work.k_tiles, release);
            store_directly<STORE_PAIRS>(accumulators, gemm, work.row + first_row, work.column);
        }
    }
    cluster_sync();  // the other CTA may still arrive at this one's barriers
}

}  // namespace warptile
