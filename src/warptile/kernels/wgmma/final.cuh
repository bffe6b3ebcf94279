// wgmma-final: one kernel for every type, layout and schedule of Hopper's tensor cores; all sizes are tuned.
//
// The kernel sets up shared memory and the tile scheduler; then each warpgroup takes its role, in a file of its own
// under wgmma/final/: producer, consumer, repack warps, store warps. What a configuration decides is in
// wgmma/final/config.cuh.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/griddepcontrol.cuh"
#include "wgmma/final/config.cuh"
#include "wgmma/final/consumer.cuh"
#include "wgmma/final/producer.cuh"
#include "wgmma/final/repack.cuh"
#include "wgmma/final/store_warps.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(WgmmaConfig<CONFIG>::THREADS, 1)
    wgmma_final(const __grid_constant__ WgmmaFinalParams<CONFIG> params) {
    using KERNEL = WgmmaFinal<CONFIG>;
    using OPERATION = typename CONFIG::OPERATION;
    extern __shared__ __align__(1024) unsigned char memory[];

    // Prologue: shared memory, barriers, the first work tile.
    GemmParams<OPERATION> gemm = params.gemm.values();
    if constexpr (!CONFIG::READS_C) gemm.beta = 0;
    const typename KERNEL::SharedMemory shared(memory);
    const typename KERNEL::ClusterPosition position;
    const int group = warpgroup_index();
    if (threadIdx.x == 0) {
        for (const TensorMap& map : params.map_a) prefetch_tensormap(map);
        for (const TensorMap& map : params.map_b) prefetch_tensormap(map);
        if (CONFIG::STORE_BY_TMA) prefetch_tensormap(params.map_d);
        for (int i = 0; i < KERNEL::EPILOGUE::MAPS; ++i) prefetch_tensormap(params.epilogue_maps()[i]);
        shared.init();
    }
    if constexpr (KERNEL::IN_CLUSTER) {
        cluster_sync_relaxed();  // the barriers of all CTAs are initialised
    } else {
        __syncthreads();
    }
    typename KERNEL::SCHEDULER scheduler(
        gemm.m, gemm.n, gemm.k, KERNEL::CONFIG::PARTIAL_TILES ? params.stream_k_tiles : 0, position.rank,
        CONFIG::BATCHED ? params.batch : 1,
        static_cast<unsigned>(reinterpret_cast<unsigned long long>(gemm.d)) / sizeof(typename OPERATION::OUT),
        static_cast<unsigned>(params.batch_stride_d), CONFIG::GATHERED_A ? params.first_shard * params.shard_rows : 0);
    const int whole_tiles = scheduler.whole_tiles_left();
    WorkTile work;
    const bool found = KERNEL::EARLY && scheduler.next(work);
    griddepcontrol_wait();

    if (group == 0) {
        if constexpr (KERNEL::CONSUMERS == 2) setmaxnreg_dec<KERNEL::PRODUCER_REGISTERS>();
        const auto repack = fused_repack<KERNEL>(params);
        if (elect_one_of_warp(0)) {
            producer<KERNEL>(shared.pipeline(), scheduler, work, found, gemm.k, position, repack, params);
        } else if (KERNEL::REPACK_WARPS > 0 && threadIdx.x >= 32) {
            repack.run(blockIdx.x * KERNEL::REPACK_WARPS + threadIdx.x / 32 - 1);
        } else if (KERNEL::STORE_WARPS > 0 && threadIdx.x / 32 >= 1 && threadIdx.x / 32 <= KERNEL::STORE_WARPS) {
            store_warps<KERNEL>(shared, gemm, params.map_d, params.batch_stride_d, whole_tiles);
        }
        if constexpr (KERNEL::CLUSTER_K > 1)
            cluster_sync_relaxed();  // the barrier inside the consumers' ClusterReduction
    } else {
        if constexpr (KERNEL::CONSUMERS == 2) setmaxnreg_inc<KERNEL::CONSUMER_REGISTERS>();
        consumer<KERNEL>(group - 1, shared, scheduler, work, found, gemm, position, params.map_d,
                         params.epilogue_maps(),
                         {params.gemm.c, params.gemm.d, params.batch_stride_c, params.batch_stride_d, &params.gemm},
                         {params.partial_accumulators, params.flags, params.stream_k_tiles});
    }
    if constexpr (KERNEL::IN_CLUSTER) cluster_sync();  // no CTA ends while another may access its shared memory
}

}  // namespace warptile
