// wgmma-sparse: 2:4 weights. TMA brings A at half its size; metadata, which says what of B each kept element meets, comes
// straight into the registers of the warps that multiply.
#pragma once

#include "ptx/dependent_launch.cuh"
#include "tile/wgmma_output.cuh"
#include "tile/wgmma_pipeline.cuh"
#include "tile/wgmma_schedule.cuh"

namespace warptile {

// One step of depth in shared memory: the stored half of A, then all of B.
template <typename OPERATION, typename TILE>
struct SparseWgmmaStage {
    using A = WgmmaPanels<typename OPERATION::ELEMENT, TILE::BM, TILE::BK / 2, true>;
    using B = WgmmaPanels<typename OPERATION::ELEMENT, TILE::BN, TILE::BK, OPERATION::B_COLUMN_MAJOR>;
    static constexpr int B_OFFSET = A::BYTES, BYTES = A::BYTES + B::BYTES, STEPS = A::SLABS;
};

// The metadata of A, packed (`warptile.sparse`): of each 64 bytes of depth a word for each lane and ROWS rows. Of 32 rows
// the lower half of each four lanes holds the first 16, the upper half the others: an odd warp takes its neighbours' words.
template <typename OPERATION, int BLOCKS, int STEPS>
struct SparseMetadata {
    static constexpr int ROWS = sizeof(typename OPERATION::ELEMENT) == 1 ? 16 : 32;
    const unsigned* words;
    int groups, steps;  // of the whole matrix

    __device__ __forceinline__ SparseMetadata(const unsigned* words, int m, int k)
        : words(words), groups(tiles_along(m, ROWS)),
          steps(max(1, static_cast<int>(tiles_along(k, 64 / sizeof(typename OPERATION::ELEMENT))))) {}

    // Loads what the blocks of 64 rows from `row` on need for STEPS steps from `first` on. Past the end of the matrix, where
    // all products are zero, the last words are taken: metadata has to be legal.
    __device__ __forceinline__ void load(unsigned (&loaded)[BLOCKS][STEPS], int row, int first) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
#pragma unroll
        for (int block = 0; block < BLOCKS; ++block) {
            const int group = min((row + 64 * block + 16 * warp) / ROWS, groups - 1);
            const int place = group * 32 + (ROWS == 32 ? lane ^ warp % 2 * 2 : lane);
#pragma unroll
            for (int step = 0; step < STEPS; ++step)
                loaded[block][step] = __ldg(words + (static_cast<long long>(min(first + step, steps - 1)) * groups * 32 + place));
        }
    }
};

template <typename OPERATION, typename TILE, bool BY_TMA, int WIDTH, int STAGES, int GROUP>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_sparse(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
                 const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
                 long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
                 typename OPERATION::SCALE beta, const unsigned* words, const __grid_constant__ TensorMap map_a,
                 const __grid_constant__ TensorMap map_b, const __grid_constant__ TensorMap map_d) {
    constexpr int CONSUMERS = 2, BLOCKS = TILE::BM / 64 / CONSUMERS;
    using STAGE = SparseWgmmaStage<OPERATION, TILE>;
    using RING = StageRing<STAGES, STAGE::BYTES>;
    using OUTPUT = WgmmaOutput<OPERATION, TILE, BY_TMA, WIDTH>;
    using INSTRUCTION = SparseWgmma<typename OPERATION::ELEMENT, typename OPERATION::WITHIN, TILE::BN>;
    extern __shared__ __align__(1024) unsigned char memory[];
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const unsigned stages = shared_address(memory), outputs = stages + STAGES * STAGE::BYTES;
    const RING ring{stages, outputs + CONSUMERS * OUTPUT::BYTES};
    if (threadIdx.x == 0) ring.init(CONSUMERS);
    __syncthreads();
    allow_next_launch();
    wait_for_previous_launch();

    WgmmaSchedule<TILE, 1, 1, GROUP, false> schedule(m, n, k, 0, 0);
    Work work;
    typename RING::POSITION position;
    const int group = warpgroup();
    if (group == 0) {
        registers_down<24>();
        const int beyond = k > 0 ? 0 : TILE::BK;
        while (threadIdx.x == 0 && schedule.next(work)) {
            for (int step = 0; step < work.steps; ++step) {
                mbarrier_wait(ring.empty(position.stage), position.parity ^ 1);
                const unsigned stage = ring.at(position.stage), full = ring.full(position.stage);
                const int depth = step * TILE::BK + beyond;
                mbarrier_arrive_expect(full, STAGE::BYTES);
                STAGE::A::load(stage, map_a, work.row, depth / 2, full);
                STAGE::B::load(stage + STAGE::B_OFFSET, map_b, work.column, depth, full);
                position.advance();
            }
        }
    } else {
        registers_up<240>();
        const int consumer = group - 1, first_row = consumer * BLOCKS * 64;
        OUTPUT output{gemm, map_d, {outputs + consumer * OUTPUT::BYTES, 0}, group};
        const SparseMetadata<OPERATION, BLOCKS, STAGE::STEPS> metadata(words, m, k);
        WgmmaSums<INSTRUCTION, typename OPERATION::SUM, TILE::BN, BLOCKS> accumulators;
        unsigned sets[2][BLOCKS][STAGE::STEPS];  // of metadata: what is multiplied, and what comes next
        int previous = 0;
        while (schedule.next(work)) {
            const auto multiply = [&](int step, int set) {
                mbarrier_wait(ring.full(position.stage), position.parity);
                const unsigned stage = ring.at(position.stage);
                const auto from_a = STAGE::A::descriptor(stage) + STAGE::A::further(first_row, 0);
                const auto from_b = STAGE::B::descriptor(stage + STAGE::B_OFFSET);
                wgmma_fence();
#pragma unroll
                for (int slab = 0; slab < STAGE::STEPS; ++slab)
#pragma unroll
                    for (int block = 0; block < BLOCKS; ++block)
                        INSTRUCTION::template multiply<0, false, !OPERATION::B_COLUMN_MAJOR>(
                            accumulators.c[block], from_a + STAGE::A::further(64 * block, slab),
                            from_b + STAGE::B::further(0, 2 * slab), sets[set][block][slab], slab > 0 || step > 0);
                wgmma_commit_group();
                wgmma_wait_group<1>();
                // The stage before is read, and so is the other set.
                if (step > 0 && threadIdx.x % WARPGROUP == 0) mbarrier_arrive(ring.empty(previous));
                metadata.load(sets[1 - set], work.row + first_row, (step + 1) * STAGE::STEPS);
                previous = position.stage;
                position.advance();
            };
            metadata.load(sets[0], work.row + first_row, 0);
            int step = 0;
            for (; step + 1 < work.steps; step += 2) {
                multiply(step, 0);
                multiply(step + 1, 1);
            }
            if (step < work.steps) multiply(step, 0);
            wgmma_wait_group<0>();
            accumulators.pin_all();
            if (threadIdx.x % WARPGROUP == 0) mbarrier_arrive(ring.empty(previous));
            output.store_all(accumulators, work.row + first_row, work.column);
        }
        output.finish();
    }
}

}  // namespace warptile
