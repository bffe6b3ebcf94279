// wgmma-multicast: two blocks whose tiles lie below each other need the same columns of B. As a cluster they load half of
// them each, and the copy engine writes what it reads once into the shared memory of both.
#pragma once

#include "ptx/cluster.cuh"
#include "tile/wgmma_pipeline.cuh"
#include "tile/wgmma_schedule.cuh"
#include "tile/wgmma_store.cuh"

namespace warptile {

template <typename OPERATION, typename TILE, bool PAIRS, int STAGES, int GROUP>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_multicast(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
                    const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
                    long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
                    typename OPERATION::SCALE beta, const __grid_constant__ TensorMap map_a,
                    const __grid_constant__ TensorMap map_b) {
    constexpr int CONSUMERS = 2, ROWS = TILE::BM / CONSUMERS, BLOCKS = 2;
    constexpr unsigned short BOTH = (1 << BLOCKS) - 1;
    using PIPELINE = WgmmaPipeline<OPERATION, TILE, STAGES>;
    using STAGE = typename PIPELINE::STAGE;
    extern __shared__ __align__(1024) unsigned char memory[];
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const int rank = cluster_rank();
    PIPELINE pipeline(memory);
    if (threadIdx.x == 0) pipeline.ring.init(CONSUMERS * BLOCKS);
    cluster_barrier<true>();  // the other block's barriers are there too

    WgmmaSchedule<TILE, BLOCKS, 1, GROUP, false> schedule(m, n, gemm.k, 0, rank);
    Work work;
    const int group = warpgroup();
    auto& ring = pipeline.ring;
    auto& position = pipeline.position;
    if (group == 0) {
        registers_down<24>();
        const int beyond = gemm.k > 0 ? 0 : TILE::BK;
        while (threadIdx.x == 0 && schedule.next(work)) {
            for (int step = 0; step < work.steps; ++step) {
                // Empty in both blocks; full once all bytes have come, those that the other block asks for too.
                mbarrier_wait(ring.empty(position.stage), position.parity ^ 1);
                const unsigned stage = ring.at(position.stage), full = ring.full(position.stage);
                const int depth = step * TILE::BK + beyond;
                mbarrier_arrive_expect(full, STAGE::BYTES);
                STAGE::A::load(stage, map_a, work.row, depth, full);
                STAGE::B::template load_share<BLOCKS>(stage + STAGE::B_OFFSET, map_b, work.column, depth, full, rank, BOTH);
                position.advance();
            }
        }
    } else {
        registers_up<240>();
        const int first_row = (group - 1) * ROWS;
        WgmmaAccumulators<OPERATION, TILE, ROWS / 64> accumulators;
        // Two threads tell one block each.
        const auto release = [&](int stage) {
            if (threadIdx.x % WARPGROUP < BLOCKS) mbarrier_arrive_at(ring.empty(stage), threadIdx.x % WARPGROUP);
        };
        while (schedule.next(work)) {
            pipeline.multiply(accumulators, first_row, work.steps, release);
            store_directly<PAIRS>(accumulators, gemm, work.row + first_row, work.column);
        }
    }
    cluster_barrier<false>();  // the other block may still arrive at barriers here
}

}  // namespace warptile
