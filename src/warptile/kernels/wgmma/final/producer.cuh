// The producer: one thread that loads the K tiles of A and B into the pipeline by TMA.
#pragma once

#include "tile/global_barrier.cuh"
#include "wgmma/final/config.cuh"

namespace warptile {

// Bytes that are loaded of each K tile of a work tile with so many rows and columns inside D.
template <typename KERNEL, bool WHOLE>
__device__ __forceinline__ int loaded_bytes(int rows, int columns) {
    using A = typename KERNEL::STAGE::A;
    using B = typename KERNEL::STAGE::B;
    int bytes = KERNEL::PART_OF_B && !WHOLE ? B::loaded_bytes(columns) : B::LOADED_BYTES;
    if constexpr (KERNEL::PART_OF_A && !WHOLE) {
        bytes += A::loaded_bytes(rows);
    } else {
        bytes += A::BYTES;
    }
    return bytes;
}

// Loads one K tile of the work tile at element `k_offset` along K, whose `bytes` complete `full`. In a cluster each CTA
// loads its share of what several of them need, and multicasts it. WHOLE: no part of the work tile lies outside D.
template <typename KERNEL, bool WHOLE, typename PARAMS>
__device__ __forceinline__ void load_stage(unsigned stage, unsigned full, const WorkTile& work, int k_offset, int bytes,
                                           const typename KERNEL::ClusterPosition& position, const PARAMS& params) {
    using CONFIG = typename KERNEL::CONFIG;
    using A = typename KERNEL::STAGE::A;
    using B = typename KERNEL::STAGE::B;
    constexpr int CLUSTER_M = KERNEL::CLUSTER_M, CLUSTER_N = KERNEL::CLUSTER_N;
    const int rank = position.rank, leader = position.leader;
    const int share_a = rank / CLUSTER_M, share_b = rank % CLUSTER_M;
    const unsigned short mask_a = CONFIG::MASK_A << (leader + rank % CLUSTER_M);
    const unsigned short mask_b = CONFIG::MASK_B << (leader + rank / CLUSTER_M * CLUSTER_M);
    const int rows = params.gemm.m - work.row, columns = params.gemm.n - work.column;
    const int batch_a = CONFIG::BROADCAST_A ? 0 : work.batch, batch_b = CONFIG::BROADCAST_B ? 0 : work.batch;
    const TensorMap &map_b = params.map_b[0], &last_map_b = params.map_b[B::MAPS - 1];
    mbarrier_arrive_expect_tx(full, bytes);
    if constexpr (CONFIG::UNALIGNED_A) {
        A::template load<CONFIG::EVICT_FIRST_A>(stage, params.map_a, work.row, k_offset, full);
    } else if constexpr (KERNEL::PART_OF_A && !WHOLE) {
        A::template load_inside<CLUSTER_N, CONFIG::BATCHED, CONFIG::EVICT_FIRST_A>(
            stage, params.map_a, work.row, k_offset, full, share_a, mask_a, batch_a, rows);
    } else if constexpr (CLUSTER_N > 1) {
        A::template load_multicast<CLUSTER_N, CONFIG::BATCHED>(stage, params.map_a[0], work.row, k_offset, full,
                                                               share_a, mask_a, batch_a);
    } else {
        A::template load<CONFIG::BATCHED, CONFIG::EVICT_FIRST_A>(stage, params.map_a[0], work.row, k_offset, full,
                                                                 batch_a);
    }
    const unsigned to = stage + A::BYTES;
    if constexpr (KERNEL::PART_OF_B && !WHOLE) {
        B::template load_inside<CLUSTER_M, CONFIG::BATCHED, CONFIG::EVICT_FIRST_B>(
            to, params.map_b, work.column, k_offset, full, share_b, mask_b, batch_b, columns);
    } else if constexpr (CLUSTER_M > 1) {
        B::template load_multicast<CLUSTER_M, CONFIG::BATCHED>(to, map_b, last_map_b, work.column, k_offset, full,
                                                               share_b, mask_b, batch_b);
    } else {
        B::template load<CONFIG::BATCHED, CONFIG::EVICT_FIRST_B>(to, map_b, last_map_b, work.column, k_offset, full,
                                                                 batch_b);
    }
}

// Loads all K tiles of the work tile, as soon as stages are released.
template <typename KERNEL, bool WHOLE, typename REPACK, typename PARAMS>
__device__ __forceinline__ void load_work_tile(const typename KERNEL::PIPELINE& pipeline,
                                               typename KERNEL::PIPELINE::STATE& state, const WorkTile& work, int k,
                                               const typename KERNEL::ClusterPosition& position, const REPACK& repack,
                                               int wave, const PARAMS& params) {
    using TILE = typename KERNEL::TILE;
    const int outside = k > 0 ? 0 : TILE::BK;  // K = 0: one K tile of zeros, which TMA fills in outside the matrices
    const bool repacked_now = KERNEL::CONFIG::FUSED_REPACK && repack.has_slices(wave);
    const int bytes = loaded_bytes<KERNEL, WHOLE>(params.gemm.m - work.row, params.gemm.n - work.column);
    for (int k_tile = work.first_k_tile; k_tile < work.first_k_tile + work.k_tiles; ++k_tile) {
        if (repacked_now && k_tile % repack.K_TILES == 0)
            repack.wait_for(wave * repack.slices() + k_tile / repack.K_TILES);
        pipeline.producer_acquire(state);
        const unsigned stage = pipeline.stage_address(state.stage), full = pipeline.full_barrier(state.stage);
        load_stage<KERNEL, WHOLE>(stage, full, work, k_tile * TILE::BK + outside, bytes, position, params);
        state.advance();
    }
}

// Waits until every shard that has rows of the work tile has arrived; afterwards TMA can read them.
template <typename KERNEL, typename PARAMS>
__device__ __forceinline__ void wait_for_shards(const WorkTile& work, const PARAMS& params) {
    const int last_row = min(work.row + KERNEL::TILE::BM, params.gemm.m) - 1;
    for (int shard = work.row / params.shard_rows; shard * params.shard_rows <= last_row; ++shard)
        wait_for_stream_flag(params.flags + shard);
    fence_proxy_async_global();
}

// The producer's loop over this CTA's work tiles; `work` is the first of them if it was `found` early. `repack` says
// what repack warps have ready.
template <typename KERNEL, typename REPACK, typename PARAMS>
__device__ __forceinline__ void producer(const typename KERNEL::PIPELINE& pipeline,
                                         typename KERNEL::SCHEDULER scheduler, WorkTile& work, bool found, int k,
                                         const typename KERNEL::ClusterPosition& position, const REPACK& repack,
                                         const PARAMS& params) {
    using TILE = typename KERNEL::TILE;
    typename KERNEL::PIPELINE::STATE state;
    int wave = 0;  // whole tiles that this CTA has taken
    for (bool more = KERNEL::EARLY ? found : scheduler.next(work); more; more = scheduler.next(work)) {
        if constexpr (KERNEL::CONFIG::GATHERED_A) wait_for_shards<KERNEL>(work, params);
        // Whole tiles have a loop of their own: a branch for each K tile would slow the producer down by more than
        // small tiles allow.
        const bool whole = work.row + TILE::BM <= params.gemm.m && work.column + TILE::BN <= params.gemm.n;
        if (whole || !(KERNEL::PART_OF_A || KERNEL::PART_OF_B)) {
            load_work_tile<KERNEL, true>(pipeline, state, work, k, position, repack, wave, params);
        } else {
            load_work_tile<KERNEL, false>(pipeline, state, work, k, position, repack, wave, params);
        }
        ++wave;
    }
    // A CTA without a tile in the last wave still leaves that wave's counters, so that they wrap around to zero.
    if constexpr (KERNEL::CONFIG::FUSED_REPACK)
        for (; wave < scheduler.waves(); ++wave)
            for (int slice = 0; repack.has_slices(wave) && slice < repack.slices(); ++slice)
                repack.wait_for(wave * repack.slices() + slice);
}

}  // namespace warptile
