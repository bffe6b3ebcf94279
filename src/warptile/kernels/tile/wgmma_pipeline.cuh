// The two ends of a ring of stages: one thread that has them filled, and warpgroups that multiply what is in them.
#pragma once

#include "ptx/shared.cuh"
#include "ptx/warpgroup.cuh"
#include "tile/wgmma_accumulators.cuh"
#include "tile/wgmma_ring.cuh"

namespace warptile {

// Shared memory of a block: STAGES stages, EXTRA bytes of the kernel's own, and the ring's barriers.
template <typename OPERATION, typename TILE, int STAGES, int EXTRA = 0>
struct WgmmaPipeline {
    using STAGE = WgmmaStage<OPERATION, TILE>;
    using RING = StageRing<STAGES, STAGE::BYTES>;
    RING ring;
    typename RING::POSITION position;
    int previous = 0;  // the stage that is read before the one at `position`

    __device__ __forceinline__ explicit WgmmaPipeline(unsigned char* memory)
        : ring{shared_address(memory), shared_address(memory) + STAGES * STAGE::BYTES + EXTRA} {}

    __device__ __forceinline__ unsigned extra() const { return ring.at(STAGES); }

    // Steps of depth; without depth there is one, of zeros from outside the matrices.
    static __device__ __forceinline__ int steps(int k) { return max(1, static_cast<int>(tiles_along(k, TILE::BK))); }

    // Fills one stage after the other with the operands of the tile at (row, column). By one thread.
    __device__ __forceinline__ void fill(const TensorMap& map_a, const TensorMap& map_b, int row, int column, int k) {
        const int beyond = k > 0 ? 0 : TILE::BK;
        for (int step = 0; step < steps(k); ++step) {
            mbarrier_wait(ring.empty(position.stage), position.parity ^ 1);
            const unsigned stage = ring.at(position.stage), full = ring.full(position.stage);
            mbarrier_arrive_expect(full, STAGE::BYTES);
            STAGE::A::load(stage, map_a, row, step * TILE::BK + beyond, full);
            STAGE::B::load(stage + STAGE::B_OFFSET, map_b, column, step * TILE::BK + beyond, full);
            position.advance();
        }
    }

    // Multiplies `count` stages, rows from `first_row` of them on. `release(stage)` says that this warpgroup has read one:
    // the products of a stage are waited for only when those of the next are under way.
    template <typename ACCUMULATORS, typename RELEASE>
    __device__ __forceinline__ void multiply(ACCUMULATORS& accumulators, int first_row, int count, const RELEASE& release) {
        issue(accumulators, first_row, count, release);
        finish(accumulators, release);
    }

    // The same in two parts: the products of the last stage are under way, and they are over.
    template <typename ACCUMULATORS, typename RELEASE>
    __device__ __forceinline__ void issue(ACCUMULATORS& accumulators, int first_row, int count, const RELEASE& release) {
        for (int step = 0; step < count; ++step) {
            mbarrier_wait(ring.full(position.stage), position.parity);
            accumulators.multiply(ring.at(position.stage), first_row, step > 0);
            wgmma_wait_group<1>();
            if (step > 0) release(previous);
            previous = position.stage;
            position.advance();
        }
    }
    template <typename ACCUMULATORS, typename RELEASE>
    __device__ __forceinline__ void finish(ACCUMULATORS& accumulators, const RELEASE& release) {
        wgmma_wait_group<0>();
        accumulators.pin_all();
        release(previous);
    }

    // One thread of a warpgroup tells the producer of this block.
    __device__ __forceinline__ void release(int stage) const {
        if (threadIdx.x % WARPGROUP == 0) mbarrier_arrive(ring.empty(stage));
    }
};

}  // namespace warptile
