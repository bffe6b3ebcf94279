// The mainloop of warp-specialized kernels: one producer thread loads stages by TMA, warpgroups multiply them.
#pragma once

#include "ptx/shared_memory.cuh"
#include "ptx/warpgroup.cuh"
#include "tile/pipeline.cuh"
#include "tile/wgmma_accumulators.cuh"

namespace warptile {

// A CTA's shared memory: STAGES stages, EXTRA bytes for the kernel, then the pipeline's barriers.
template <typename OPERATION, typename TILE, int STAGES, int EXTRA = 0>
struct WgmmaMainloop {
    using STAGE = WgmmaStage<OPERATION, TILE>;
    using PIPELINE = Pipeline<STAGES, STAGE::BYTES>;
    PIPELINE pipeline;
    typename PIPELINE::STATE state;
    int previous = 0;  // the stage before the one at `state`

    __device__ __forceinline__ explicit WgmmaMainloop(unsigned char* memory)
        : pipeline{shared_address(memory), shared_address(memory) + STAGES * STAGE::BYTES + EXTRA} {}

    __device__ __forceinline__ unsigned extra() const { return pipeline.stage_address(STAGES); }

    // Iterations of the mainloop. With K = 0 there is one, of zeros that TMA fills in outside the matrices.
    static __device__ __forceinline__ int k_tiles(int k) { return max(1, static_cast<int>(tiles_along(k, TILE::BK))); }

    // Producer, one thread: loads the K tiles of A and B for the tile of D at (row, column),
    __device__ __forceinline__ void load(const TensorMap& map_a, const TensorMap& map_b, int row, int column, int k) {
        load(map_a, map_b, row, column, k, 0, k_tiles(k));
    }
    // or those from `first` up to `end`.
    __device__ __forceinline__ void load(const TensorMap& map_a, const TensorMap& map_b, int row, int column, int k,
                                         int first, int end) {
        const int outside = k > 0 ? 0 : TILE::BK;
        for (int k_tile = first; k_tile < end; ++k_tile) {
            pipeline.producer_acquire(state);
            const unsigned stage = pipeline.stage_address(state.stage), full = pipeline.full_barrier(state.stage);
            mbarrier_arrive_expect_tx(full, STAGE::BYTES);
            STAGE::A::load(stage, map_a, row, k_tile * TILE::BK + outside, full);
            STAGE::B::load(stage + STAGE::B_OFFSET, map_b, column, k_tile * TILE::BK + outside, full);
            state.advance();
        }
    }

    // Consumer, one warpgroup: multiplies `k_tiles` stages, rows from `first_row` of A on. `release(stage)` tells the
    // producers that this warpgroup has read a stage; that is known one iteration later, while the next wgmmas run.
    template <typename ACCUMULATORS, typename RELEASE>
    __device__ __forceinline__ void mma(ACCUMULATORS& accumulators, int first_row, int k_tiles,
                                        const RELEASE& release) {
        mma_issue(accumulators, first_row, k_tiles, release);
        mma_tail(accumulators, release);
    }

    // One iteration in two parts: `issue` starts the wgmmas of a stage, `complete` releases the stage before it. Work
    // between them overlaps with the wgmmas. The tile's first iteration does not `accumulate`. WIDTH and K_BLOCKS: the
    // tile's first columns, and the stage's first blocks of K, alone are multiplied.
    template <int WIDTH = TILE::BN, int K_BLOCKS = STAGE::A::K_BLOCKS, typename ACCUMULATORS>
    __device__ __forceinline__ void issue(ACCUMULATORS& accumulators, int first_row, bool accumulate) {
        pipeline.consumer_wait(state);
        accumulators.template multiply<WIDTH, K_BLOCKS>(pipeline.stage_address(state.stage), first_row, accumulate);
    }
    template <typename RELEASE>
    __device__ __forceinline__ void complete(const RELEASE& release, bool accumulate) {
        wgmma_wait_group<1>();
        if (accumulate) release(previous);
        previous = state.stage;
        state.advance();
    }

    // In place of a tile's only iteration: its stage is not read.
    __device__ __forceinline__ void pass() {
        previous = state.stage;
        state.advance();
    }

    // All iterations in two parts: until the wgmmas of the last stage are issued, and until they have completed.
    template <typename ACCUMULATORS, typename RELEASE>
    __device__ __forceinline__ void mma_issue(ACCUMULATORS& accumulators, int first_row, int k_tiles,
                                              const RELEASE& release) {
        for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
            issue(accumulators, first_row, k_tile > 0);
            complete(release, k_tile > 0);
        }
    }
    template <typename ACCUMULATORS, typename RELEASE>
    __device__ __forceinline__ void mma_tail(ACCUMULATORS& accumulators, const RELEASE& release) {
        wgmma_wait_group<0>();
        accumulators.fence_operands();
        release(previous);
    }

    // Releases a stage to the producer of this CTA: one arrival for the warpgroup.
    __device__ __forceinline__ void release(int stage) const {
        if (threadIdx.x % WARPGROUP == 0) mbarrier_arrive(pipeline.empty_barrier(stage));
    }
};

}  // namespace warptile
