// wgmma-split: float32 on tensor cores. Both operands are split into two scaled float16 slices by a pass before; three
// products of slices, of which the largest is promoted to float32 registers, are as accurate as float32.
#pragma once

#include "tile/split_accumulation.cuh"
#include "tile/tile_scheduler.cuh"
#include "tile/unsplit_product.cuh"
#include "tile/wgmma_epilogue.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"

namespace warptile {

template <typename OPERATION>
struct WgmmaSplitParams {
    GemmParams<OPERATION> gemm;
    TensorMap map_a, map_b, map_d;
    SplitSource source_a, source_b;
};

template <typename CONFIG>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_split(const __grid_constant__ WgmmaSplitParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr bool STORE_BY_TMA = CONFIG::STORE_BY_TMA;
    constexpr int STORE_WIDTH = CONFIG::STORE_WIDTH, STAGES = CONFIG::STAGES, GROUP = CONFIG::GROUP;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    constexpr int CONSUMERS = 2, ROWS = TILE::BM / CONSUMERS;
    using EPILOGUE = WgmmaEpilogue<OPERATION, TILE, STORE_BY_TMA, STORE_WIDTH>;
    using STAGE = SplitStage<OPERATION, TILE>;
    using SPLIT = SplitAccumulation<OPERATION, TILE, ROWS / 64, CONFIG::INTERVAL>;
    using PIPELINE = Pipeline<STAGES, STAGE::BYTES>;
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned stages = shared_address(memory), outputs = stages + STAGES * STAGE::BYTES;
    const PIPELINE pipeline{stages, outputs + CONSUMERS * EPILOGUE::BYTES};
    typename PIPELINE::STATE state;
    if (threadIdx.x == 0) pipeline.init(CONSUMERS);
    __syncthreads();

    // Whole intervals of promotion: past the end of K, TMA fills tiles with zeros.
    const int k_tiles =
        SPLIT::STAGES_OF_INTERVAL * static_cast<int>(tiles_along(gemm.k, SPLIT::STAGES_OF_INTERVAL * TILE::BK));
    TileScheduler<TILE, 1, 1, GROUP, false> scheduler(gemm.m, gemm.n, gemm.k, 0, 0);
    WorkTile work;
    const int group = warpgroup_index();
    if (group == 0) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0)
            while (scheduler.next(work))
                for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
                    pipeline.producer_acquire(state);
                    STAGE::load(pipeline.stage_address(state.stage), params.map_a, params.map_b, work.row, work.column,
                                k_tile * TILE::BK, pipeline.full_barrier(state.stage));
                    state.advance();
                }
    } else {
        setmaxnreg_inc<240>();
        const int consumer = group - 1, first_row = consumer * ROWS;
        WgmmaAccumulators<OPERATION, TILE, ROWS / 64> accumulators;
        SPLIT split;
        EPILOGUE epilogue{gemm, params.map_d, {outputs + consumer * EPILOGUE::BYTES, 0}, group};
        const auto release = [&](int stage) {
            if (threadIdx.x % WARPGROUP == 0) mbarrier_arrive(pipeline.empty_barrier(stage));
        };
        while (scheduler.next(work)) {
            accumulators.zero();
            split.begin();
            for (int k_tile = 0; k_tile < k_tiles; k_tile += SPLIT::STAGES_OF_INTERVAL) {
#pragma unroll
                for (int i = 0; i < SPLIT::STAGES_OF_INTERVAL; ++i) {
                    pipeline.consumer_wait(state);
                    split.multiply(pipeline.stage_address(state.stage), first_row, 0, i > 0);
                    // Of the stage before all products are complete.
                    wgmma_wait_group<2>();
                    if (k_tile + i > 0) release(state.previous_stage());
#pragma unroll
                    for (int part = 1; part < SPLIT::PARTS; ++part) {
                        split.promote(accumulators);
                        split.multiply(pipeline.stage_address(state.stage), first_row, part, false);
                    }
                    state.advance();
                }
                split.promote(accumulators);
            }
            split.finish(accumulators);
            release(state.previous_stage());

            const int row = work.row + first_row;
            const SplitSource &a = params.source_a, &b = params.source_b;
            undo_scales(accumulators, a, b, gemm, row, work.column);
            if (!(a.all_split<TILE::BM>(work.row, gemm.m) && b.all_split<TILE::BN>(work.column, gemm.n))) {
                epilogue.template wait_until_read<0>();
                multiply_unsplit<EPILOGUE::BYTES>(accumulators, a, b, gemm, row, work.column,
                                                  outputs + consumer * EPILOGUE::BYTES, group);
            }
            epilogue.store_all(accumulators, row, work.column);
        }
        epilogue.finish();
    }
}

}  // namespace warptile
