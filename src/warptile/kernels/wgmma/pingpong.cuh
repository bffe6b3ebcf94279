// wgmma-pingpong: the two warpgroups take turns on tiles of their own: while one stores, the other has the tensor cores.
#pragma once

#include "tile/wgmma_output.cuh"
#include "tile/wgmma_pipeline.cuh"
#include "tile/wgmma_schedule.cuh"

namespace warptile {

template <typename OPERATION, typename TILE, bool BY_TMA, int WIDTH, int STAGES, int GROUP>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_pingpong(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
                   const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
                   long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
                   typename OPERATION::SCALE beta, const __grid_constant__ TensorMap map_a,
                   const __grid_constant__ TensorMap map_b, const __grid_constant__ TensorMap map_d) {
    constexpr int CONSUMERS = 2;
    using OUTPUT = WgmmaOutput<OPERATION, TILE, BY_TMA, WIDTH>;
    using PIPELINE = WgmmaPipeline<OPERATION, TILE, STAGES, CONSUMERS * OUTPUT::BYTES>;
    extern __shared__ __align__(1024) unsigned char memory[];
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    PIPELINE pipeline(memory);
    const unsigned turns = pipeline.ring.barriers + PIPELINE::RING::BARRIER_BYTES;  // one barrier for each warpgroup
    if (threadIdx.x == 0) {
        for (int consumer = 0; consumer < CONSUMERS; ++consumer) mbarrier_init(turns + consumer * MBARRIER_BYTES, 1);
        pipeline.ring.init(1);
    }
    __syncthreads();

    WgmmaSchedule<TILE, 1, 1, GROUP, false> schedule(m, n, gemm.k, 0, 0);
    Work work;
    const int group = warpgroup();
    if (group == 0) {
        registers_down<24>();
        if (threadIdx.x == 0)
            while (schedule.next(work)) pipeline.fill(map_a, map_b, work.row, work.column, gemm.k);
    } else {
        registers_up<240>();
        const int consumer = group - 1;
        WgmmaAccumulators<OPERATION, TILE, TILE::BM / 64> accumulators;
        OUTPUT output{gemm, map_d, {pipeline.extra() + consumer * OUTPUT::BYTES, 0}, group};
        for (int number = 0; schedule.next(work); ++number) {
            if (number % CONSUMERS != consumer) {
                pipeline.position.advance(work.steps);  // the other's stages
                continue;
            }
            // The block's first tile needs no leave; after it each turn is given by the other warpgroup.
            if (number > 0) mbarrier_wait(turns + consumer * MBARRIER_BYTES, (number - 1) / CONSUMERS % 2);
            const auto release = [&](int stage) { pipeline.release(stage); };
            pipeline.issue(accumulators, 0, work.steps, release);
            // The other's products may queue behind the last of these.
            if (threadIdx.x % WARPGROUP == 0) mbarrier_arrive(turns + (1 - consumer) * MBARRIER_BYTES);
            pipeline.finish(accumulators, release);
            output.store_all(accumulators, work.row, work.column);
        }
        output.finish();
    }
}

}  // namespace warptile
