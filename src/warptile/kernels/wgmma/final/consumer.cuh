// A consumer: one warpgroup that multiplies stages as they become full and stores its part of each tile.
#pragma once

#include "tile/stream_k.cuh"
#include "tile/wgmma_held_subtiles.cuh"
#include "wgmma/final/cluster_reduction.cuh"
#include "wgmma/final/config.cuh"
#include "wgmma/final/split_k.cuh"

namespace warptile {

// One iteration of a consumer's mainloop is a K tile, in two parts: `issue` starts its wgmmas, `complete` releases the
// stage that has been read. Between them there is time for an epilogue. After `tail` all wgmmas of the tile have
// completed.
template <typename KERNEL>
struct ConsumerMainloop {
    using OPERATION = typename KERNEL::OPERATION;
    using CONFIG = typename KERNEL::CONFIG;
    const typename KERNEL::PIPELINE& pipeline;
    const typename KERNEL::ClusterPosition& position;
    const int first_row, first_column;  // of this warpgroup's part of a tile
    typename KERNEL::PIPELINE::STATE& state;
    typename KERNEL::ACCUMULATORS& accumulators;
    typename KERNEL::TWO_LEVEL& two_level;
    typename KERNEL::FACTORS& factors;
    const typename KERNEL::STAGE::A::FragmentLoader& loader;

    // Tells the producers that load parts of this stage, here and in neighbouring CTAs, that this warpgroup has read
    // it.
    __device__ __forceinline__ void release(int stage) const {
        constexpr int CLUSTER = KERNEL::CLUSTER, CLUSTER_M = KERNEL::CLUSTER_M;
        if constexpr (CONFIG::UNALIGNED_A) __syncwarp();
        const int thread = threadIdx.x % (WARPGROUP / KERNEL::ARRIVALS_OF_WARPGROUP), rank = position.rank;
        if constexpr (CLUSTER == 1) {
            if (thread == 0) mbarrier_arrive(pipeline.empty_barrier(stage));
        } else if (thread < CLUSTER &&
                   (thread % CLUSTER_M == rank % CLUSTER_M || thread / CLUSTER_M == rank / CLUSTER_M)) {
            mbarrier_arrive_remote(pipeline.empty_barrier(stage), position.leader + thread);
        }
    }

    // Where blocks of A and B have scales, loads those of the work tile's first interval along K.
    __device__ __forceinline__ void begin(const WorkTile& work, const GemmParams<OPERATION>& gemm,
                                          const typename KERNEL::Batch& batch) const {
        if constexpr (KERNEL::BLOCK_SCALED)
            factors.begin(*batch.first, work.batch, work.row + first_row, work.column + first_column, gemm.m, gemm.n,
                          work.first_k_tile * KERNEL::TWO_LEVEL::PARTS, tiles_along(gemm.k, SCALE_K));
    }

    __device__ __forceinline__ void issue(bool first) const {
        // With stream-K the compiler does not see that the stage is the same in all lanes, and would move every
        // descriptor to a uniform register between the wgmmas.
        const int stage = CONFIG::STREAM_K ? warp_uniform(state.stage) : state.stage;
        pipeline.consumer_wait(state);
        if constexpr (OPERATION::PROMOTED) {
            two_level.multiply(pipeline.stage_address(stage), first_row, first_column);
        } else if constexpr (CONFIG::UNALIGNED_A) {
            accumulators.multiply(loader, pipeline.stage_address(stage), first_row, !first);
        } else {
            accumulators.multiply(pipeline.stage_address(stage), first_row, !first, first_column);
        }
    }

    __device__ __forceinline__ void complete(bool first) const {
        if constexpr (OPERATION::PROMOTED) {
            two_level.promote(accumulators, factors, [&] { release(state.stage); });
        } else {
            wgmma_wait_group<1>();
            if (!first) release(state.previous_stage());
        }
        state.advance();
    }

    // All iterations of a tile where two-level accumulation has two sets of registers: a stage's sums are promoted
    // while the next stage is multiplied.
    __device__ __forceinline__ void alternate(int k_tiles) const {
        issue_set<0>();
        int stage = state.stage;
        state.advance();
        int k_tile = 1;
        for (; k_tile + 1 < k_tiles; k_tile += 2) {
            issue_set<1>();
            promote_set<0, 1>(stage);
            stage = state.stage;
            state.advance();
            issue_set<0>();
            promote_set<1, 1>(stage);
            stage = state.stage;
            state.advance();
        }
        if (k_tile < k_tiles) {
            issue_set<1>();
            promote_set<0, 1>(stage);
            promote_set<1, 0>(state.stage);
            state.advance();
        } else {
            promote_set<0, 0>(stage);
        }
    }

    __device__ __forceinline__ void tail() const {
        if constexpr (!OPERATION::PROMOTED) {
            wgmma_wait_group<0>();
            accumulators.fence_operands();
            release(state.previous_stage());
        }
    }

  private:
    template <int SET>
    __device__ __forceinline__ void issue_set() const {
        pipeline.consumer_wait(state);
        two_level.template multiply<KERNEL::PART::BN, SET>(pipeline.stage_address(state.stage), first_row,
                                                           first_column);
    }

    // LATER: stages that have been issued after this one, 1 or 0.
    template <int SET, int LATER>
    __device__ __forceinline__ void promote_set(int stage) const {
        two_level.template promote<KERNEL::PART::BN, SET, LATER>(accumulators, factors, [&] { release(stage); });
    }
};

// Points the epilogue at the work tile's matrix of a batch.
template <typename KERNEL>
__device__ __forceinline__ void select_batch(typename KERNEL::EPILOGUE& epilogue,
                                             GemmParams<typename KERNEL::OPERATION>& gemm,
                                             const typename KERNEL::Batch& batch, const WorkTile& work) {
    if constexpr (KERNEL::CONFIG::RESIDUE_CLASSES > 1) {
        epilogue.batch = work.batch * static_cast<int>(batch.stride_d);
    } else if constexpr (KERNEL::CONFIG::BATCHED) {
        gemm.c = batch.c + work.batch * batch.stride_c;
        epilogue.batch = work.batch;
        if constexpr (KERNEL::Batch::FUSED) gemm.select_matrix(*batch.first, work.batch);
    }
}

// Brings what the epilogue reads for a work tile into L2, while the tile is multiplied.
template <typename KERNEL>
__device__ __forceinline__ void prefetch_epilogue(const GemmParams<typename KERNEL::OPERATION>& gemm,
                                                  const typename KERNEL::Batch& batch, const WorkTile& work,
                                                  int first_row, int first_column) {
    if constexpr (KERNEL::Batch::FUSED && !KERNEL::CONFIG::PARTIAL_TILES) {
        typename KERNEL::Batch::EPILOGUE_OPERANDS operands = *batch.first;
        if constexpr (KERNEL::CONFIG::BATCHED) operands.select_matrix(*batch.first, work.batch);
        operands.template prefetch<KERNEL::PART::BM, KERNEL::PART::BN, KERNEL::EPILOGUE_STAGED>(
            work.row + first_row, work.column + first_column, gemm.m, gemm.n, threadIdx.x % WARPGROUP, WARPGROUP);
    }
}

// What an epilogue can do while a whole tile is multiplied.
template <typename KERNEL>
__device__ __forceinline__ void begin_epilogue(typename KERNEL::EPILOGUE& epilogue,
                                               GemmParams<typename KERNEL::OPERATION>& gemm,
                                               const typename KERNEL::Batch& batch, const WorkTile& work, int first_row,
                                               int first_column) {
    if constexpr (!KERNEL::CONFIG::PARTIAL_TILES) {
        prefetch_epilogue<KERNEL>(gemm, batch, work, first_row, first_column);
        if constexpr (KERNEL::EPILOGUE_STAGED) {
            select_batch<KERNEL>(epilogue, gemm, batch, work);
            epilogue.begin_staging(work.row + first_row, work.column + first_column, KERNEL::SUBTILES);
        }
    }
}

// The overlapped epilogue: a finished tile, converted to D's type, is held in registers and stored between the wgmmas
// of the next tile's first iterations. What does not fit beside the next accumulators is stored at once.
template <typename KERNEL>
__device__ __forceinline__ void overlapped_mainloop(const ConsumerMainloop<KERNEL>& mainloop,
                                                    typename KERNEL::EPILOGUE& epilogue,
                                                    typename KERNEL::SCHEDULER& scheduler, WorkTile& work, bool found,
                                                    GemmParams<typename KERNEL::OPERATION>& gemm,
                                                    const typename KERNEL::Batch& batch) {
    using SUBTILES = typename KERNEL::EPILOGUE::SUBTILES;
    constexpr int HELD = KERNEL::HELD, AT_ONCE = KERNEL::AT_ONCE;
    constexpr bool HAS_STORE_WARP = KERNEL::STORE_WARPS > 0;
    auto& accumulators = mainloop.accumulators;
    Vector<typename KERNEL::OPERATION::OUT, 2> held[KERNEL::M64_BLOCKS][KERNEL::PART::BN / 8][2];
    int held_row = 0, held_column = 0;
    bool holding = false;
    const auto held_subtile = [&](int subtile) {
        return [&, m64 = subtile / SUBTILES::COUNT](int n8, int half) { return held[m64][n8][half]; };
    };
    for (bool more = KERNEL::EARLY ? found : scheduler.next(work); more; more = scheduler.next(work)) {
        if constexpr (KERNEL::OPERATION::PROMOTED) accumulators.zero();
        mainloop.begin(work, gemm, batch);
        prefetch_epilogue<KERNEL>(gemm, batch, work, mainloop.first_row, mainloop.first_column);
        // The host makes sure that a tile has at least HELD iterations. A store warp is slower than TMA: for it
        // subtiles come further apart.
        const int apart = HAS_STORE_WARP ? work.k_tiles / HELD : 1;
#pragma unroll
        for (int number = 0; number < HELD; ++number) {
            mainloop.issue(number == 0);
            if (holding) {
                const int subtile = AT_ONCE + number;
                epilogue.template store_or_enqueue<HAS_STORE_WARP>(subtile, held_row, held_column,
                                                                   held_subtile(subtile));
            }
            mainloop.complete(number == 0);
            for (int further = 1; further < apart; ++further) {
                mainloop.issue(false);
                mainloop.complete(false);
            }
        }
        // The tile before is stored: from here on the epilogue is that of this tile. What it reads first is loaded into
        // the registers that held the other's results, while the rest of this one is multiplied; with store warps,
        // which take registers of consumers, a few blocks at a time.
        select_batch<KERNEL>(epilogue, gemm, batch, work);
        held_row = work.row + mainloop.first_row;
        held_column = work.column + mainloop.first_column;
        holding = true;
        auto reader = KERNEL::EPILOGUE::template reader_of<typename KERNEL::ACCUMULATORS, !HAS_STORE_WARP>(
            gemm, held_row, held_column);
        for (int k_tile = HELD * apart; k_tile < work.k_tiles; ++k_tile) {
            mainloop.issue(false);
            mainloop.complete(false);
        }
        mainloop.tail();
        finish_tile<HAS_STORE_WARP, AT_ONCE, KERNEL::CONFIG::READS_C>(held, accumulators, epilogue, gemm, reader,
                                                                      held_row, held_column);
    }
    if (holding) {
        if constexpr (HAS_STORE_WARP) epilogue.drain();
#pragma unroll
        for (int subtile = AT_ONCE; subtile < KERNEL::SUBTILES; ++subtile)
            epilogue.store(subtile, held_row, held_column, held_subtile(subtile));
    }
}

// Mainloop, then epilogue, of one tile after the other. With ping-pong this warpgroup has every other tile.
template <typename KERNEL>
__device__ __forceinline__ void plain_mainloop(const ConsumerMainloop<KERNEL>& mainloop,
                                               typename KERNEL::EPILOGUE& epilogue,
                                               typename KERNEL::SCHEDULER& scheduler, WorkTile& work, bool found,
                                               GemmParams<typename KERNEL::OPERATION>& gemm,
                                               const typename KERNEL::Batch& batch,
                                               const typename KERNEL::Workspace& workspace,
                                               const typename KERNEL::SharedMemory& shared, int consumer) {
    using CONFIG = typename KERNEL::CONFIG;
    const auto& position = mainloop.position;
    auto& accumulators = mainloop.accumulators;
    unsigned order_phase = 0;
    int number = 0;
    for (bool more = KERNEL::EARLY ? found : scheduler.next(work); more; ++number, more = scheduler.next(work)) {
        if constexpr (KERNEL::IS_PINGPONG) {
            if (number % 2 != consumer) {
                mainloop.state.advance(work.k_tiles);  // the other consumer's stages
                continue;
            }
            begin_epilogue<KERNEL>(epilogue, gemm, batch, work, mainloop.first_row, mainloop.first_column);
            if (number > 0) {
                mbarrier_wait(shared.order_barrier(consumer), order_phase);
                order_phase ^= 1;
            }
        }
        if constexpr (!KERNEL::IS_PINGPONG)
            begin_epilogue<KERNEL>(epilogue, gemm, batch, work, mainloop.first_row, mainloop.first_column);
        if constexpr (KERNEL::OPERATION::PROMOTED || CONFIG::PARTIAL_TILES) {
            // Otherwise the wgmmas seem to depend on additions to the accumulators, and the compiler serialises them.
            accumulators.zero();
            accumulators.fence_operands();
        }
        mainloop.begin(work, gemm, batch);
        if constexpr (KERNEL::ALTERNATES) {
            mainloop.alternate(work.k_tiles);
        } else {
            for (int k_tile = 0; k_tile < work.k_tiles; ++k_tile) {
                mainloop.issue(k_tile == 0);
                mainloop.complete(k_tile == 0);
            }
        }
        // All wgmmas are issued: the other consumer's may follow.
        if (KERNEL::IS_PINGPONG && threadIdx.x % WARPGROUP == 0) mbarrier_arrive(shared.order_barrier(1 - consumer));
        mainloop.tail();
        const int row = work.row + mainloop.first_row, column = work.column + mainloop.first_column;
        // What lies outside D has no value where parts of tiles are loaded; CTAs exchange zeros.
        if constexpr (CONFIG::PARTIAL_TILES && KERNEL::CLUSTER_K == 1 && KERNEL::LOADS_PARTS)
            accumulators.zero_outside(gemm.m - row, gemm.n - column);
        if constexpr (CONFIG::STREAM_K)
            if (!complete_stream_k_tile(accumulators, scheduler, work,
                                        {workspace.accumulators, workspace.flags, consumer + 1}, [&](int cluster) {
                                            return (cluster * KERNEL::CLUSTER + position.rank) * KERNEL::CONSUMERS +
                                                   consumer;
                                        }))
                continue;
        select_batch<KERNEL>(epilogue, gemm, batch, work);
        if constexpr (KERNEL::CLUSTER_K > 1) {
            using REDUCTION = ClusterReduction<typename KERNEL::ACCUMULATORS, KERNEL::CLUSTER_K, KERNEL::CONSUMERS>;
            const int part = position.k_part();
            const REDUCTION reduction{shared.stages + consumer * REDUCTION::BYTES, position.rank, KERNEL::CLUSTER,
                                      part};
            epilogue.store_all(reduction.reduce(accumulators), row, column + part * KERNEL::STORED_TILE::BN);
            break;  // a CTA has one split of one tile
        } else if constexpr (CONFIG::SPLIT_K) {
            if constexpr (CONFIG::BATCHED) gemm.d = batch.d + work.batch * batch.stride_d;
            finish_split_k_tile<KERNEL>(accumulators, gemm, scheduler, workspace, position.rank, consumer, row, column);
            break;  // a CTA has one split of one tile
        }
        epilogue.template store_all<!CONFIG::PARTIAL_TILES>(accumulators, row, column);
    }
}

// Consumer warpgroup number `consumer`; `work` is the first work tile if it was `found` early.
template <typename KERNEL>
__device__ __forceinline__ void consumer(int consumer, const typename KERNEL::SharedMemory& shared,
                                         typename KERNEL::SCHEDULER scheduler, WorkTile& work, bool found,
                                         GemmParams<typename KERNEL::OPERATION>& gemm,
                                         const typename KERNEL::ClusterPosition& position, const TensorMap& map_d,
                                         const TensorMap* epilogue_maps, const typename KERNEL::Batch& batch,
                                         const typename KERNEL::Workspace& workspace) {
    using CONFIG = typename KERNEL::CONFIG;
    const auto pipeline = shared.pipeline();
    typename KERNEL::PIPELINE::STATE state;
    typename KERNEL::ACCUMULATORS accumulators;
    typename KERNEL::EPILOGUE epilogue{gemm,         map_d, shared.epilogue(consumer),
                                       consumer + 1, 0,     CONFIG::RESIDUE_CLASSES > 1 ? 1 : batch.stride_d,
                                       epilogue_maps};
    typename KERNEL::TWO_LEVEL two_level;
    typename KERNEL::FACTORS factors;
    const typename KERNEL::STAGE::A::FragmentLoader loader(gemm.a, gemm.lda);
    const int first_row = KERNEL::IS_PINGPONG || KERNEL::BY_COLUMNS ? 0 : consumer * KERNEL::PART::BM;
    const int first_column = KERNEL::BY_COLUMNS ? consumer * KERNEL::PART::BN : 0;
    const ConsumerMainloop<KERNEL> mainloop{pipeline,     position,  first_row, first_column, state,
                                            accumulators, two_level, factors,   loader};
    if constexpr (CONFIG::OVERLAP_EPILOGUE) {
        overlapped_mainloop<KERNEL>(mainloop, epilogue, scheduler, work, found, gemm, batch);
    } else {
        plain_mainloop<KERNEL>(mainloop, epilogue, scheduler, work, found, gemm, batch, workspace, shared, consumer);
    }
    griddepcontrol_launch_dependents();
    epilogue.finish();
}

}  // namespace warptile
