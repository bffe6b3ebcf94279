// wgmma-grouped: many GEMMs in one launch, whose extents are in device memory. Groups of columns of D have an A of
// their own (mixture of experts, its operands swapped: the weights are A), or groups along K a D of their own (the
// gradient of the weights).
#pragma once

#include "ptx/griddepcontrol.cuh"
#include "ptx/memory_order.cuh"
#include "tile/grouped_scheduler.cuh"
#include "tile/two_level_accumulation.cuh"
#include "tile/wgmma_held_subtiles.cuh"
#include "tile/wgmma_mainloop.cuh"

namespace warptile {

// map_a has a third dimension, the group; with groups along K map_d has it. Boxes of map_a_block and map_b_block have
// one block of K: of the last K tile of a group along K, they load what the group has.
template <typename CONFIG>
struct WgmmaGroupedParams {
    GemmParams<typename CONFIG::OPERATION> gemm;
    TensorMap map_a, map_b, map_d, map_a_block, map_b_block;
    const typename CONFIG::OFFSET* ends;
    unsigned* counters;  // of tiles that were taken, and of CTAs that found no more
    int groups;
    long long batch_stride_d;
};

// What follows from a configuration.
template <typename CONFIG>
struct WgmmaGrouped {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    static constexpr bool ALONG_K = CONFIG::ALONG_K, STORE_BY_TMA = CONFIG::STORE_BY_TMA;
    static constexpr int CONSUMERS = 2, STORE_WIDTH = CONFIG::STORE_WIDTH, STAGES = CONFIG::STAGES;
    static_assert(TILE::BM == CONSUMERS * 64,
                  "a consumer has 64 rows: one column of subtiles, of which one is clipped");
    static_assert(ALONG_K ? OPERATION::A_COLUMN_MAJOR && !OPERATION::B_COLUMN_MAJOR : OPERATION::B_COLUMN_MAJOR,
                  "groups divide a dimension that is not the innermost one: TMA takes any coordinate there");

    // With groups of columns, tiles have a multiple of STEP columns: the instruction is as narrow as that. B is loaded
    // in boxes of BOX columns.
    static constexpr int STEP = ALONG_K ? TILE::BN : CONFIG::STEP, BOX = CONFIG::BOX;
    static_assert(TILE::BN % STEP == 0 && STEP % 8 == 0, "an instruction has a multiple of eight columns");
    static_assert(TILE::BN % BOX == 0 && BOX % 8 == 0, "a box of B is whole swizzle atoms of eight lines");

    // TMA stores a finished tile during the next mainloop, as in wgmma-overlap; all of it is held in registers.
    static constexpr bool CLIPPED = !ALONG_K && STORE_BY_TMA;
    using EPILOGUE =
        WgmmaEpilogue<OPERATION, TILE, STORE_BY_TMA, STORE_WIDTH, ALONG_K, false, 1, STORE_BY_TMA, CLIPPED>;
    using ACCUMULATORS = WgmmaAccumulators<OPERATION, TILE, 1>;
    using SUBTILES = typename EPILOGUE::SUBTILES;
    // Those of 8-bit floats have two levels.
    static constexpr int SETS = OPERATION::PROMOTED ? 2 : 1;
    static_assert(!STORE_BY_TMA || held_subtiles<SUBTILES::COUNT, SUBTILES::WORDS, SETS * ACCUMULATORS::REGISTERS>() ==
                                       SUBTILES::COUNT,
                  "a finished tile fits into registers beside the next one");
    static constexpr int OVERLAPPED = STORE_BY_TMA ? SUBTILES::COUNT : 0;

    using PARAMS = WgmmaGroupedParams<CONFIG>;
    using SCHEDULER =
        typename Choice<ALONG_K, KGroupScheduler<TILE, CONFIG::GROUP, CONFIG::MOST_SORTED, PARAMS>,
                        ColumnGroupScheduler<TILE, CONFIG::GROUP, STEP, CONFIG::MOST_SORTED, PARAMS>>::type;
    // What is in shared memory beside stages and epilogue buffers.
    struct Shared {
        typename SCHEDULER::Table table;
        GroupedTile tiles[STAGES];  // the tile whose first K tile is in a stage
    };
    static constexpr int SHARED_BYTES = (static_cast<int>(sizeof(Shared)) + 15) / 16 * 16;
    using MAINLOOP = WgmmaMainloop<OPERATION, TILE, STAGES, CONSUMERS * EPILOGUE::BYTES + SHARED_BYTES>;
    using STAGE = typename MAINLOOP::STAGE;
    static constexpr int SHARED_OFFSET = STAGES * STAGE::BYTES + CONSUMERS * EPILOGUE::BYTES;
};

// The producer, one thread: loads the K tiles of one tile of D, of B no more boxes than the tile has. It calls
// `announce(stage)` before the first one arrives.
template <typename KERNEL, typename ANNOUNCE>
__device__ __forceinline__ void load_grouped_tile(typename KERNEL::MAINLOOP& mainloop, const GroupedTile& work,
                                                  const typename KERNEL::PARAMS& params, const ANNOUNCE& announce) {
    using STAGE = typename KERNEL::STAGE;
    using TILE = typename KERNEL::TILE;
    using ELEMENT = typename KERNEL::OPERATION::ELEMENT;
    const int boxes = static_cast<int>(tiles_along(work.columns, KERNEL::BOX));
    const int bytes = STAGE::A::BYTES + boxes * KERNEL::BOX * TILE::BK * static_cast<int>(sizeof(ELEMENT));
    const int k_extent = work.k_end - work.k_begin;
    const int k_tiles = KERNEL::ALONG_K ? k_extent / TILE::BK : mainloop.k_tiles(k_extent);
    auto& state = mainloop.state;
    for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
        const int k = work.k_begin + k_tile * TILE::BK;
        mainloop.pipeline.producer_acquire(state);
        if (k_tile == 0) announce(state.stage);
        const unsigned stage = mainloop.pipeline.stage_address(state.stage), b = stage + STAGE::B_OFFSET;
        const unsigned full = mainloop.pipeline.full_barrier(state.stage);
        mbarrier_arrive_expect_tx(full, KERNEL::ALONG_K ? STAGE::BYTES : bytes);
        STAGE::A::template load<!KERNEL::ALONG_K>(stage, params.map_a, work.row, k, full, work.group);
        if constexpr (KERNEL::ALONG_K) {
            STAGE::B::load(b, params.map_b, work.column, k, full);
        } else {
            STAGE::B::template load_boxes<KERNEL::BOX>(b, params.map_b, work.column, k, full, boxes);
        }
        state.advance();
    }
    if constexpr (KERNEL::ALONG_K) {
        // The last K tile, if the group has a part of it: the blocks of K that are in the group. A group without K has
        // such a K tile too, of no block.
        const int inside = k_extent % TILE::BK, k = work.k_end - inside;
        if (inside == 0 && k_tiles > 0) return;
        mainloop.pipeline.producer_acquire(state);
        if (k_tiles == 0) announce(state.stage);
        const unsigned stage = mainloop.pipeline.stage_address(state.stage), b = stage + STAGE::B_OFFSET;
        const unsigned full = mainloop.pipeline.full_barrier(state.stage);
        const int k_blocks = static_cast<int>(tiles_along(inside, STAGE::A::K_BLOCK_LINES));
        mbarrier_arrive_expect_tx(full, k_blocks * (STAGE::A::K_BLOCK_BYTES + STAGE::B::K_BLOCK_BYTES));
        STAGE::A::load_k_blocks(stage, params.map_a_block, work.row, k, full, k_blocks);
        STAGE::B::load_k_blocks(b, params.map_b_block, work.column, k, full, k_blocks);
        state.advance();
    }
}

// A consumer, one warpgroup: multiplies and stores its rows of a tile, from `first_row` on.
template <typename KERNEL>
struct GroupedConsumer {
    using ACCUMULATORS = typename KERNEL::ACCUMULATORS;
    using EPILOGUE = typename KERNEL::EPILOGUE;
    using MAINLOOP = typename KERNEL::MAINLOOP;
    using OPERATION = typename KERNEL::OPERATION;
    using SUBTILES = typename KERNEL::SUBTILES;
    using TILE = typename KERNEL::TILE;
    static constexpr int OVERLAPPED = KERNEL::OVERLAPPED;

    MAINLOOP& mainloop;
    GemmParams<OPERATION>& gemm;  // the epilogue's: its n is where columns of the tile that is stored end
    EPILOGUE& epilogue;
    const typename KERNEL::PARAMS& params;
    const int first_row;
    Vector<typename OPERATION::OUT, 2> held[1][TILE::BN / 8][2];
    bool holding = false;  // a finished tile, at (row, column)
    int row, column;

    // Computes and stores a tile, with an instruction that is as narrow as it is. TMA stores it during the next one.
    __device__ __forceinline__ void compute(const GroupedTile& work) {
        compute_columns<KERNEL::STEP>(work, warp_uniform(work.columns), warp_uniform(work.k_end - work.k_begin));
        holding = true;
        if constexpr (KERNEL::CLIPPED) {
#pragma unroll
            for (int subtile = 0; subtile < SUBTILES::COUNT; ++subtile)
                epilogue.write_clipped(subtile, column, held_pairs());
            epilogue.store_clipped(row, column);
        }
        if constexpr (!KERNEL::STORE_BY_TMA) store_held();
    }

    // Stores what is held.
    __device__ __forceinline__ void store_held() {
#pragma unroll
        for (int subtile = 0; subtile < SUBTILES::COUNT; ++subtile) store_held(subtile);
        holding = false;
    }

  private:
    __device__ __forceinline__ void store_held(int subtile) {
        if (holding) epilogue.store(subtile, row, column, held_pairs());
    }
    __device__ __forceinline__ auto held_pairs() const {
        return [this](int n8, int half) { return held[0][n8][half]; };
    }

    template <int WIDTH>
    __device__ __forceinline__ void compute_columns(const GroupedTile& work, int columns, int k_extent) {
        if constexpr (WIDTH < TILE::BN) {
            if (columns > WIDTH) return compute_columns<WIDTH + KERNEL::STEP>(work, columns, k_extent);
        }
        multiply<WIDTH>(work, k_extent);
    }

    // Multiplies the first WIDTH columns of a tile, which has not more, while the tile before it is stored.
    template <int WIDTH>
    __device__ __forceinline__ void multiply(const GroupedTile& work, int k_extent) {
        ACCUMULATORS accumulators;
        accumulators.zero();  // else those of all widths would be live at one time: the compiler takes them for inputs
        accumulators.fence_operands();
        if constexpr (OPERATION::PROMOTED) {
            accumulate_in_two_levels<WIDTH>(accumulators, work, mainloop.k_tiles(k_extent));
        } else {
            accumulate<WIDTH>(accumulators, k_extent);
        }

        // From here on the epilogue is that of this tile.
        row = work.row + first_row;
        column = work.column;
        if constexpr (KERNEL::ALONG_K) {
            epilogue.batch = work.group;
        } else {
            gemm.n = work.column + work.columns;
        }
        if constexpr (GemmParams<OPERATION>::EPILOGUE::FUSED) gemm.select_matrix(params.gemm, work.group);
        auto reader = EPILOGUE::template reader_of<ACCUMULATORS>(gemm, row, column);
        finish_tile<false, 0, false>(held, accumulators, epilogue, gemm, reader, row, column);
    }

    // K tiles one by one; of a group along K the last one as far as the group has it.
    template <int WIDTH>
    __device__ __forceinline__ void accumulate(ACCUMULATORS& accumulators, int k_extent) {
        const auto release = [&](int stage) { mainloop.release(stage); };
        const int k_tiles = KERNEL::ALONG_K ? k_extent / TILE::BK : mainloop.k_tiles(k_extent);
#pragma unroll
        for (int k_tile = 0; k_tile < OVERLAPPED; ++k_tile) {
            if (k_tile < k_tiles) mainloop.template issue<WIDTH>(accumulators, first_row, k_tile > 0);
            store_held(k_tile);
            if (k_tile < k_tiles) mainloop.complete(release, k_tile > 0);
        }
        for (int k_tile = OVERLAPPED; k_tile < k_tiles; ++k_tile) {
            mainloop.template issue<WIDTH>(accumulators, first_row, k_tile > 0);
            mainloop.complete(release, k_tile > 0);
        }
        if constexpr (KERNEL::ALONG_K) {
            const int inside = k_extent % TILE::BK;
            if (inside > 0) {
                issue_rest<WIDTH, 1>(accumulators, inside, k_tiles > 0);
                mainloop.complete(release, k_tiles > 0);
            } else if (k_tiles == 0) {
                mainloop.pass();
            }
        }
        mainloop.mma_tail(accumulators, release);
    }

    // Multiplies the blocks of K of which a part is `inside` of the group, K_BLOCKS of them or more.
    template <int WIDTH, int K_BLOCKS>
    __device__ __forceinline__ void issue_rest(ACCUMULATORS& accumulators, int inside, bool accumulate) {
        using A = typename KERNEL::STAGE::A;
        constexpr int LINES = K_BLOCKS * A::K_BLOCK_LINES;
        if constexpr (K_BLOCKS < A::K_BLOCKS) {
            if (inside > LINES) return issue_rest<WIDTH, K_BLOCKS + 1>(accumulators, inside, accumulate);
        }
        if (inside < LINES) clear_behind_group(inside, LINES);
        mainloop.template issue<WIDTH, K_BLOCKS>(accumulators, first_row, accumulate);
    }

    // As wgmma-two-level: sums of 128 along K are promoted to the accumulators, which begin at zero, times the scales
    // of blocks of operands, if they have some.
    template <int WIDTH>
    __device__ __forceinline__ void accumulate_in_two_levels(ACCUMULATORS& accumulators, const GroupedTile& work,
                                                             int k_tiles) {
        using GEMM_EPILOGUE = typename GemmParams<OPERATION>::EPILOGUE;
        typename FactorsOf<GEMM_EPILOGUE, TILE::BN, 1>::type factors;
        if constexpr (GEMM_EPILOGUE::BLOCK_SCALED)
            factors.begin(params.gemm, work.group, work.row + first_row, work.column, gemm.m,
                          work.column + work.columns, 0, k_tiles);
        TwoLevelAccumulation<OPERATION, TILE, 1> intervals;
        intervals.zero();  // as the accumulators
        const auto multiply = [&] {
            mainloop.pipeline.consumer_wait(mainloop.state);
            intervals.template multiply<WIDTH>(mainloop.pipeline.stage_address(mainloop.state.stage), first_row);
        };
        const auto promote = [&] {
            intervals.template promote<WIDTH>(accumulators, factors, [&] { mainloop.release(mainloop.state.stage); });
            mainloop.state.advance();
        };
#pragma unroll
        for (int k_tile = 0; k_tile < OVERLAPPED; ++k_tile) {
            store_held(k_tile);
            if (k_tile < k_tiles) {
                multiply();
                promote();
            }
        }
        for (int k_tile = OVERLAPPED; k_tile < k_tiles; ++k_tile) {
            multiply();
            promote();
        }
    }

    // What is behind the end of a group along K belongs to the next one: in the stage that comes next all consumers
    // overwrite K units from `inside` up to `end` with zeros, of both operands.
    __device__ __forceinline__ void clear_behind_group(int inside, int end) const {
        using STAGE = typename KERNEL::STAGE;
        constexpr int THREADS = KERNEL::CONSUMERS * WARPGROUP;
        mainloop.pipeline.consumer_wait(mainloop.state);
        const unsigned stage = mainloop.pipeline.stage_address(mainloop.state.stage);
        STAGE::A::template clear_lines<THREADS>(stage, inside, end, threadIdx.x - WARPGROUP);
        STAGE::B::template clear_lines<THREADS>(stage + STAGE::B_OFFSET, inside, end, threadIdx.x - WARPGROUP);
        fence_proxy_async();
        bar_sync<THREADS>(KERNEL::CONSUMERS + 1);
    }
};

// A CTA takes the next tile whenever it is free, as tiles differ in size. The producer asks for a tile's number one
// tile ahead, finds the tile, and writes it beside the stage that gets its first K tile; consumers read it there, which
// takes them less time than to find it.
template <typename KERNEL>
struct TilesOnDemand {
    using PARAMS = typename KERNEL::PARAMS;
    static constexpr int NO_MORE = -1;  // in place of a group

    typename KERNEL::MAINLOOP& mainloop;
    const PARAMS& params;
    typename KERNEL::Shared& shared;

    // The producer, one thread.
    __device__ __forceinline__ void load() {
        typename KERNEL::SCHEDULER scheduler{params, shared.table};
        GroupedTile work;
        unsigned next = blockIdx.x;
        while (scheduler.find(next, work)) {
            next = gridDim.x + atom_relaxed_gpu_add(params.counters, 1);
            load_grouped_tile<KERNEL>(mainloop, work, params, [&](int stage) { shared.tiles[stage] = work; });
        }
        const auto& state = mainloop.state;
        mainloop.pipeline.producer_acquire(state);
        shared.tiles[state.stage].group = NO_MORE;
        mbarrier_arrive(mainloop.pipeline.full_barrier(state.stage));
        // The last CTA leaves the counters at zero.
        if (atom_acq_rel_gpu_inc(params.counters + 1, gridDim.x - 1) == gridDim.x - 1)
            st_relaxed_gpu(params.counters, 0);
    }

    // A consumer's next tile; false when there is none.
    __device__ __forceinline__ bool next(GroupedTile& work, const typename KERNEL::EPILOGUE& epilogue) const {
        mainloop.pipeline.consumer_wait(mainloop.state);
        work = shared.tiles[mainloop.state.stage];
        epilogue.sync_warpgroup();  // all warps have read it before the first thread releases the stage
        return work.group != NO_MORE;
    }
};

template <typename CONFIG>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_grouped(const __grid_constant__ WgmmaGroupedParams<CONFIG> params) {
    using KERNEL = WgmmaGrouped<CONFIG>;
    using EPILOGUE = typename KERNEL::EPILOGUE;
    extern __shared__ __align__(1024) unsigned char memory[];
    typename KERNEL::MAINLOOP mainloop(memory);
    GemmParams<typename KERNEL::OPERATION> gemm = params.gemm.values();
    gemm.beta = 0;
    if (threadIdx.x == 0) {
        prefetch_tensormap(params.map_a);
        prefetch_tensormap(params.map_b);
        if (KERNEL::STORE_BY_TMA) prefetch_tensormap(params.map_d);
        mainloop.pipeline.init(KERNEL::CONSUMERS);
    }
    __syncthreads();
    griddepcontrol_wait();

    const int group = warpgroup_index();
    auto& shared = *reinterpret_cast<typename KERNEL::Shared*>(memory + KERNEL::SHARED_OFFSET);
    KERNEL::SCHEDULER::sort(params, shared.table);
    if (group == 0) {
        setmaxnreg_dec<40>();
        if (elect_one_of_warp(0)) TilesOnDemand<KERNEL>{mainloop, params, shared}.load();
    } else {
        setmaxnreg_inc<232>();
        const unsigned buffers = mainloop.extra() + (group - 1) * EPILOGUE::BYTES;
        EPILOGUE epilogue{gemm, params.map_d, {buffers, 0}, group, 0, params.batch_stride_d};
        GroupedConsumer<KERNEL> consumer{mainloop, gemm, epilogue, params, (group - 1) * 64};
        TilesOnDemand<KERNEL> tiles{mainloop, params, shared};
        for (GroupedTile work; tiles.next(work, epilogue);) consumer.compute(work);
        consumer.store_held();
        epilogue.finish();
    }
}

}  // namespace warptile
