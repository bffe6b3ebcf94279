// wgmma-persistent: a block stays on its multiprocessor and takes one tile after the other, in an order that L2 likes. While
// a tile is stored, the next one's operands are already on their way.
#pragma once

#include "tile/wgmma_pipeline.cuh"
#include "tile/wgmma_schedule.cuh"
#include "tile/wgmma_store.cuh"

namespace warptile {

template <typename OPERATION, typename TILE, bool PAIRS, int STAGES, int GROUP>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_persistent(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
                     const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
                     long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
                     typename OPERATION::SCALE beta, const __grid_constant__ TensorMap map_a,
                     const __grid_constant__ TensorMap map_b) {
    constexpr int CONSUMERS = 2, ROWS = TILE::BM / CONSUMERS;
    using PIPELINE = WgmmaPipeline<OPERATION, TILE, STAGES>;
    extern __shared__ __align__(1024) unsigned char memory[];
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    PIPELINE pipeline(memory);
    if (threadIdx.x == 0) pipeline.ring.init(CONSUMERS);
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
        const int first_row = (group - 1) * ROWS;
        WgmmaAccumulators<OPERATION, TILE, ROWS / 64> accumulators;
        while (schedule.next(work)) {
            pipeline.multiply(accumulators, first_row, work.steps, [&](int stage) { pipeline.release(stage); });
            store_directly<PAIRS>(accumulators, gemm, work.row + first_row, work.column);
        }
    }
}

}  // namespace warptile
