// wgmma-store: sums leave as they came, by the copy engine: stmatrix puts them into swizzled panels in shared memory, a
// tensor copy stores them, and the next tile is multiplied meanwhile.
#pragma once

#include "tile/wgmma_output.cuh"
#include "tile/wgmma_pipeline.cuh"
#include "tile/wgmma_schedule.cuh"

namespace warptile {

template <typename OPERATION, typename TILE, bool BY_TMA, int WIDTH, int STAGES, int GROUP>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_store(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
                const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
                long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
                typename OPERATION::SCALE beta, const __grid_constant__ TensorMap map_a,
                const __grid_constant__ TensorMap map_b, const __grid_constant__ TensorMap map_d) {
    constexpr int CONSUMERS = 2, ROWS = TILE::BM / CONSUMERS;
    using OUTPUT = WgmmaOutput<OPERATION, TILE, BY_TMA, WIDTH>;
    using PIPELINE = WgmmaPipeline<OPERATION, TILE, STAGES, CONSUMERS * OUTPUT::BYTES>;
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
        const int consumer = group - 1;
        WgmmaAccumulators<OPERATION, TILE, ROWS / 64> accumulators;
        OUTPUT output{gemm, map_d, {pipeline.extra() + consumer * OUTPUT::BYTES, 0}, group};
        while (schedule.next(work)) {
            pipeline.multiply(accumulators, consumer * ROWS, work.steps, [&](int stage) { pipeline.release(stage); });
            output.store_all(accumulators, work.row + consumer * ROWS, work.column);
        }
        output.finish();
    }
}

}  // namespace warptile
