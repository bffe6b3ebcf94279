// wgmma-overlap: the epilogue overlaps with the next mainloop. A finished tile, converted to D's type, stays in
// registers and is stored subtile by subtile between the wgmmas of the next tile's first iterations.
#pragma once

#include "tile/tile_scheduler.cuh"
#include "tile/wgmma_held_subtiles.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_overlap(const __grid_constant__ WgmmaStoreParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr bool STORE_BY_TMA = CONFIG::STORE_BY_TMA;
    constexpr int STORE_WIDTH = CONFIG::STORE_WIDTH, STAGES = CONFIG::STAGES, GROUP = CONFIG::GROUP;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    constexpr int CONSUMERS = 2, ROWS = TILE::BM / CONSUMERS, M64_BLOCKS = ROWS / 64;
    using ACCUMULATORS = WgmmaAccumulators<OPERATION, TILE, M64_BLOCKS>;
    using EPILOGUE = WgmmaEpilogue<OPERATION, TILE, STORE_BY_TMA, STORE_WIDTH, false, false, 1, true>;
    using MAINLOOP = WgmmaMainloop<OPERATION, TILE, STAGES, CONSUMERS * EPILOGUE::BYTES>;
    // The last HELD subtiles of a warpgroup's part of a tile are held; the first ones are stored at once.
    using SUBTILES = typename EPILOGUE::SUBTILES;
    constexpr int COUNT = M64_BLOCKS * SUBTILES::COUNT;
    constexpr int HELD = held_subtiles<COUNT, SUBTILES::WORDS, M64_BLOCKS * ACCUMULATORS::REGISTERS>(),
                  AT_ONCE = COUNT - HELD;
    static_assert(HELD > 0, "at least one finished subtile fits beside the next tile");
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
        ACCUMULATORS accumulators;
        EPILOGUE epilogue{gemm, params.map_d, {mainloop.extra() + consumer * EPILOGUE::BYTES, 0}, group};
        Vector<typename OPERATION::OUT, 2> held[M64_BLOCKS][TILE::BN / 8][2];
        int row, column;
        bool holding = false;
        const auto store_held = [&](int number) {
            const int subtile = AT_ONCE + number, m64 = subtile / SUBTILES::COUNT;
            epilogue.store(subtile, row, column, [&](int n8, int half) { return held[m64][n8][half]; });
        };
        const auto release = [&](int stage) { mainloop.release(stage); };
        while (scheduler.next(work)) {
#pragma unroll
            for (int k_tile = 0; k_tile < HELD; ++k_tile) {
                if (k_tile < work.k_tiles) mainloop.issue(accumulators, consumer * ROWS, k_tile > 0);
                if (holding) store_held(k_tile);
                if (k_tile < work.k_tiles) mainloop.complete(release, k_tile > 0);
            }
            for (int k_tile = HELD; k_tile < work.k_tiles; ++k_tile) {
                mainloop.issue(accumulators, consumer * ROWS, true);
                mainloop.complete(release, true);
            }
            mainloop.mma_tail(accumulators, release);
            row = work.row + consumer * ROWS;
            column = work.column;
            holding = true;
            auto reader = EPILOGUE::template reader_of<ACCUMULATORS>(gemm, row, column);
            finish_tile<false, AT_ONCE>(held, accumulators, epilogue, gemm, reader, row, column);
        }
        if (holding)
#pragma unroll
            for (int number = 0; number < HELD; ++number) store_held(number);
        epilogue.finish();
    }
}

}  // namespace warptile
