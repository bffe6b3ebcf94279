// wgmma-split: float32 on tensor cores. Both operands are split into two scaled float16 slices by a pass before; three
// products of slices, of which the largest is promoted to float32 registers, are as accurate as float32.
#pragma once

#include "ptx/griddepcontrol.cuh"
#include "tile/split_accumulation.cuh"
#include "tile/tile_scheduler.cuh"
#include "tile/unsplit_product.cuh"
#include "tile/wgmma_epilogue.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"
#include "wgmma/final/split_k.cuh"

namespace warptile {

template <typename OPERATION>
struct WgmmaSplitParams {
    GemmParams<OPERATION> gemm;
    TensorMap map_a[2], map_b[2], map_d;  // of operands: of whole boxes, and of the box across the end
    SplitSource source_a, source_b;
    unsigned char* partial_accumulators;
    unsigned* counters;
    int split_tiles;  // tiles whose K several CTAs share: all or none
    int batch;
    long long batch_stride_c, batch_stride_d;
};

// What follows from a configuration.
template <typename CONFIG>
struct WgmmaSplit {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    static constexpr int CONSUMERS = 2, ROWS = TILE::BM / CONSUMERS, CLUSTER = 1, STORE_WIDTH = CONFIG::STORE_WIDTH;
    using EPILOGUE = WgmmaEpilogue<OPERATION, TILE, CONFIG::STORE_BY_TMA, STORE_WIDTH, CONFIG::BATCHED>;
    using ACCUMULATORS = WgmmaAccumulators<OPERATION, TILE, ROWS / 64>;
    using STAGE = SplitStage<OPERATION, TILE>;
    using SPLIT = SplitAccumulation<OPERATION, TILE, ROWS / 64, CONFIG::INTERVAL>;
    using PIPELINE = Pipeline<CONFIG::STAGES, STAGE::BYTES>;

    // Work is counted in whole intervals of promotion: past the end of K, TMA fills tiles with zeros.
    static constexpr int STAGES_OF_INTERVAL = SPLIT::STAGES_OF_INTERVAL, K_OF_INTERVAL = STAGES_OF_INTERVAL * TILE::BK;
    struct ScheduledTile {
        static constexpr int BM = TILE::BM, BN = TILE::BN, BK = K_OF_INTERVAL;
    };
    using SCHEDULER = TileScheduler<ScheduledTile, 1, 1, CONFIG::GROUP, false, CONFIG::BATCHED>;

    struct Workspace {
        unsigned char* accumulators;
        unsigned* flags;
        int stream_k_tiles;
    };
};

// The producer: loads the stages of `count` K tiles from `first` on, as they are released.
template <typename KERNEL, bool WHOLE, typename PARAMS>
__device__ __forceinline__ void load_split_tiles(const typename KERNEL::PIPELINE& pipeline,
                                                 typename KERNEL::PIPELINE::STATE& state, const PARAMS& params, int row,
                                                 int column, int first, int count, int rows, int columns) {
    for (int k_tile = first; k_tile < first + count; ++k_tile) {
        pipeline.producer_acquire(state);
        KERNEL::STAGE::template load<WHOLE>(pipeline.stage_address(state.stage), params.map_a, params.map_b, row,
                                            column, k_tile * KERNEL::TILE::BK, pipeline.full_barrier(state.stage), rows,
                                            columns);
        state.advance();
    }
}

template <typename CONFIG>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_split(const __grid_constant__ WgmmaSplitParams<typename CONFIG::OPERATION> params) {
    using KERNEL = WgmmaSplit<CONFIG>;
    using OPERATION = typename KERNEL::OPERATION;
    using TILE = typename KERNEL::TILE;
    using EPILOGUE = typename KERNEL::EPILOGUE;
    using STAGE = typename KERNEL::STAGE;
    using SPLIT = typename KERNEL::SPLIT;
    constexpr int CONSUMERS = KERNEL::CONSUMERS, STAGES_OF_INTERVAL = KERNEL::STAGES_OF_INTERVAL;
    GemmParams<OPERATION> gemm = params.gemm.values();
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned stages = shared_address(memory), outputs = stages + CONFIG::STAGES * STAGE::BYTES;
    const typename KERNEL::PIPELINE pipeline{stages, outputs + CONSUMERS * EPILOGUE::BYTES};
    typename KERNEL::PIPELINE::STATE state;
    if (threadIdx.x == 0) pipeline.init(CONSUMERS);
    __syncthreads();
    // The next launch is not let in early: the CTAs of its pass would crowd on the first SMs that become free.
    griddepcontrol_wait();

    typename KERNEL::SCHEDULER scheduler(gemm.m, gemm.n, gemm.k, CONFIG::SPLITS_K ? params.split_tiles : 0, 0,
                                         CONFIG::BATCHED ? params.batch : 1);
    WorkTile work;  // its K tiles are intervals
    const int group = warpgroup_index();
    if (group == 0) {
        setmaxnreg_dec<24>();
        if (elect_one_of_warp(0))
            while (scheduler.next(work)) {
                const int first = work.first_k_tile * STAGES_OF_INTERVAL, count = work.k_tiles * STAGES_OF_INTERVAL;
                int row = work.row, column = work.column;
                if constexpr (CONFIG::BATCHED) {
                    row += params.source_a.first_line(work.batch);
                    column += params.source_b.first_line(work.batch);
                }
                const int rows = gemm.m - work.row, columns = gemm.n - work.column;  // inside D
                if (rows >= TILE::BM && columns >= TILE::BN) {
                    load_split_tiles<KERNEL, true>(pipeline, state, params, row, column, first, count, rows, columns);
                } else {
                    load_split_tiles<KERNEL, false>(pipeline, state, params, row, column, first, count, rows, columns);
                }
            }
    } else {
        setmaxnreg_inc<240>();
        const int consumer = group - 1, first_row = consumer * KERNEL::ROWS;
        typename KERNEL::ACCUMULATORS accumulators;
        SPLIT split;
        EPILOGUE epilogue{gemm, params.map_d, {outputs + consumer * EPILOGUE::BYTES, 0}, group};
        const auto release = [&](int stage) {
            if (threadIdx.x % WARPGROUP == 0) mbarrier_arrive(pipeline.empty_barrier(stage));
        };
        while (scheduler.next(work)) {
            accumulators.zero();
            split.begin();
            for (int interval = 0; interval < work.k_tiles; ++interval) {
#pragma unroll
                for (int i = 0; i < STAGES_OF_INTERVAL; ++i) {
                    pipeline.consumer_wait(state);
                    split.multiply(pipeline.stage_address(state.stage), first_row, 0, i > 0);
                    // Of the stage before all products are complete.
                    wgmma_wait_group<2>();
                    if (interval + i > 0) release(state.previous_stage());
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
            const SplitSource& a = matrix_of_batch<CONFIG::BATCHED>(params.source_a, work.batch);
            const SplitSource& b = matrix_of_batch<CONFIG::BATCHED>(params.source_b, work.batch);
            undo_scales(accumulators, a, b, gemm, row, work.column);
            if (!(a.all_split<TILE::BM>(work.row, gemm.m) && b.all_split<TILE::BN>(work.column, gemm.n))) {
                epilogue.template wait_until_read<0>();
                const int first_k = work.first_k_tile * KERNEL::K_OF_INTERVAL;
                multiply_unsplit<EPILOGUE::BYTES>(accumulators, a, b, gemm, row, work.column, first_k,
                                                  min(gemm.k, first_k + work.k_tiles * KERNEL::K_OF_INTERVAL),
                                                  outputs + consumer * EPILOGUE::BYTES, group);
            }
            if constexpr (CONFIG::BATCHED) {
                gemm.c = params.gemm.c + work.batch * params.batch_stride_c;
                gemm.d = params.gemm.d + work.batch * params.batch_stride_d;
                if constexpr (GemmParams<OPERATION>::EPILOGUE::FUSED) gemm.select_matrix(params.gemm, work.batch);
                epilogue.batch = work.batch;
            }
            if constexpr (CONFIG::SPLITS_K) {
                accumulators.zero_outside(gemm.m - row, gemm.n - work.column);
                finish_split_k_tile<KERNEL>(accumulators, gemm, scheduler,
                                            {params.partial_accumulators, params.counters, params.split_tiles}, 0,
                                            consumer, row, work.column);
                break;  // a CTA has one split of one tile
            }
            epilogue.store_all(accumulators, row, work.column);
        }
        epilogue.finish();
    }
}

}  // namespace warptile
