// A ring of stages between those who fill them and those who multiply them, each stage with two barriers.
#pragma once

#include "ptx/mbarrier.cuh"

namespace warptile {

// Which stage comes next, and the parity of the phase that its barriers are in: it changes with every turn.
template <int STAGES>
struct RingPosition {
    int stage = 0;
    unsigned parity = 0;

    // The stage before.
    __device__ __forceinline__ int before() const { return stage == 0 ? STAGES - 1 : stage - 1; }

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    __device__ __forceinline__ void advance(int steps) {
        const int reached = stage + steps;
        parity ^= reached / STAGES & 1;
        stage = reached % STAGES;
    }
};

// Addresses of STAGES stages in shared memory and of the barriers behind them. A stage is *full* when its bytes have
// come, and *empty* when everyone who reads it has done so.
template <int STAGES_, int STAGE_BYTES>
struct StageRing {
    static constexpr int STAGES = STAGES_;
    static constexpr int BARRIER_BYTES = 2 * STAGES * MBARRIER_BYTES;
    using POSITION = RingPosition<STAGES>;
    unsigned stages, barriers;

    __device__ __forceinline__ unsigned at(int stage) const { return stages + stage * STAGE_BYTES; }
    __device__ __forceinline__ unsigned full(int stage) const { return barriers + stage * MBARRIER_BYTES; }
    __device__ __forceinline__ unsigned empty(int stage) const { return barriers + (STAGES + stage) * MBARRIER_BYTES; }

    // By one thread, before all others use the ring: a stage is filled by `writers` arrivals and emptied by `readers`.
    __device__ __forceinline__ void init(unsigned readers, unsigned writers = 1) const {
        static_assert(STAGES >= 2, "at least two stages: a stage is given back when the next one is being multiplied");
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full(stage), writers);
            mbarrier_init(empty(stage), readers);
        }
        fence_mbarrier_init();
    }
};

}  // namespace warptile
