// A warp's registers: accumulators of its WM x WN tile, and the fragments of one step of depth.
#pragma once

#include "tile/tile.cuh"

namespace warptile {

template <typename OPERATION, typename TILE>
struct Accumulators {
    static constexpr int ROWS = TILE::WM / OPERATION::FM, COLUMNS = TILE::WN / OPERATION::FN;
    static_assert(TILE::WM % OPERATION::FM == 0 && TILE::WN % OPERATION::FN == 0, "a warp tile is whole fragments");
    typename OPERATION::C at[ROWS][COLUMNS];

    __device__ __forceinline__ void zero() {
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
                wmma::fill_fragment(at[i][j], static_cast<typename OPERATION::ACCUMULATOR>(0));
    }
};

template <typename OPERATION, typename TILE>
struct Fragments {
    static constexpr int ROWS = TILE::WM / OPERATION::FM, COLUMNS = TILE::WN / OPERATION::FN;
    typename OPERATION::A a[ROWS];
    typename OPERATION::B b[COLUMNS];

    // Loads this warp's fragments for the units of depth [depth, depth + STEP) of the stage.
    template <int PAD>
    __device__ __forceinline__ void load(const Stage<OPERATION, TILE, PAD>& stage, int depth) {
        constexpr int A_STRIDE = decltype(stage.a)::STRIDE, B_STRIDE = decltype(stage.b)::STRIDE;
        const auto* a_tile = stage.a.units + TILE::warp_row() * A_STRIDE + depth;
        const auto* b_tile = stage.b.units + (OPERATION::B_COLUMN_MAJOR ? TILE::warp_column() * B_STRIDE + depth
                                                                       : depth * B_STRIDE + TILE::warp_column());
        constexpr int B_NEXT = OPERATION::FN * (OPERATION::B_COLUMN_MAJOR ? B_STRIDE : 1);
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
            load_shared_fragment<OPERATION>(a[i], a_tile + i * OPERATION::FM * A_STRIDE, A_STRIDE);
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) load_shared_fragment<OPERATION>(b[j], b_tile + j * B_NEXT, B_STRIDE);
    }
};

// The warp's outer product of one step: every A fragment with every B fragment. ZIGZAG runs every other row
// backwards, so that two products in a row always share an operand.
template <bool ZIGZAG = false, typename OPERATION, typename TILE>
__device__ __forceinline__ void multiply(Accumulators<OPERATION, TILE>& accumulators,
                                         const Fragments<OPERATION, TILE>& fragments) {
    constexpr int ROWS = Accumulators<OPERATION, TILE>::ROWS, COLUMNS = Accumulators<OPERATION, TILE>::COLUMNS;
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int step = 0; step < COLUMNS; ++step) {
            const int j = ZIGZAG && i % 2 ? COLUMNS - 1 - step : step;
            multiply_fragments<OPERATION>(accumulators.at[i][j], fragments.a[i], fragments.b[j]);
        }
}

// The whole depth of a stage, one set of fragments.
template <int PAD, typename OPERATION, typename TILE>
__device__ __forceinline__ void multiply_stage(Accumulators<OPERATION, TILE>& accumulators,
                                               const Stage<OPERATION, TILE, PAD>& stage) {
    static_assert(TILE::BK % OPERATION::STEP == 0, "a stage is a whole number of fragments deep");
#pragma unroll
    for (int depth = 0; depth < TILE::BK; depth += OPERATION::STEP) {
        Fragments<OPERATION, TILE> fragments;
        fragments.load(stage, depth);
        multiply(accumulators, fragments);
    }
}

}  // namespace warptile
