// A pipeline of stages in shared memory between a producer and its consumers. Each stage has two mbarriers: *full*,
// which completes when the stage's bytes have arrived, and *empty*, which completes when every consumer has read them.
#pragma once

#include "ptx/mbarrier.cuh"

namespace warptile {

// The stage that comes next and the phase parity of its barriers, which flips each time the index wraps around.
template <int STAGES>
struct PipelineState {
    int stage = 0;
    unsigned phase = 0;

    __device__ __forceinline__ int previous_stage() const { return stage == 0 ? STAGES - 1 : stage - 1; }

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
    __device__ __forceinline__ void advance(int count) {
        const int reached = stage + count;
        phase ^= reached / STAGES & 1;
        stage = reached % STAGES;
    }
};

// Shared addresses of STAGES stages and of their barriers.
template <int STAGES_, int STAGE_BYTES_>
struct Pipeline {
    static constexpr int STAGES = STAGES_, STAGE_BYTES = STAGE_BYTES_;
    static constexpr int BARRIER_BYTES = 2 * STAGES * MBARRIER_BYTES;
    using STATE = PipelineState<STAGES>;
    unsigned stages, barriers;

    __device__ __forceinline__ unsigned stage_address(int stage) const { return stages + stage * STAGE_BYTES; }
    __device__ __forceinline__ unsigned full_barrier(int stage) const { return barriers + stage * MBARRIER_BYTES; }
    __device__ __forceinline__ unsigned empty_barrier(int stage) const {
        return barriers + (STAGES + stage) * MBARRIER_BYTES;
    }

    // One thread initialises the barriers before any other uses them. A stage is full after `producer_arrivals`
    // arrivals and empty after `consumer_arrivals`.
    __device__ __forceinline__ void init(unsigned consumer_arrivals, unsigned producer_arrivals = 1) const {
        static_assert(STAGES >= 2, "at least two stages: a stage is released while the next one is multiplied");
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full_barrier(stage), producer_arrivals);
            mbarrier_init(empty_barrier(stage), consumer_arrivals);
        }
        fence_mbarrier_init();
    }

    // Waits until the stage may be filled. A new barrier's previous phase counts as complete, so the first pass does
    // not wait.
    __device__ __forceinline__ void producer_acquire(const STATE& state) const {
        mbarrier_wait(empty_barrier(state.stage), state.phase ^ 1);
    }

    // Waits until the stage is full.
    __device__ __forceinline__ void consumer_wait(const STATE& state) const {
        mbarrier_wait(full_barrier(state.stage), state.phase);
    }
};

}  // namespace warptile
