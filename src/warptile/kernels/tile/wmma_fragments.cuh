// A warp's registers: accumulators of its WM x WN tile, and the fragments of one k-block.
#pragma once

#include "tile/wmma_stage.cuh"

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

// Loads row `i` of this warp's fragments of A for the units [k_offset, k_offset + K_BLOCK) along K of the stage. What
// depends on the warp comes first in the address: the rest is an offset in the instruction.
template <typename OPERATION, typename TILE, int PAD>
__device__ __forceinline__ void load_a(typename OPERATION::A& a, const Stage<OPERATION, TILE, PAD>& stage, int i,
                                       int k_offset) {
    constexpr int STRIDE = decltype(stage.a)::STRIDE;
    const auto* warp_tile = stage.a.units + TILE::warp_row() * STRIDE;
    load_shared_fragment<OPERATION>(a, warp_tile + k_offset + i * OPERATION::FM * STRIDE, STRIDE);
}

// Loads column `j` of this warp's fragments of B for the same k-block.
template <typename OPERATION, typename TILE, int PAD>
__device__ __forceinline__ void load_b(typename OPERATION::B& b, const Stage<OPERATION, TILE, PAD>& stage, int j,
                                       int k_offset) {
    constexpr int STRIDE = decltype(stage.b)::STRIDE;
    constexpr int K_STRIDE = OPERATION::B_COLUMN_MAJOR ? 1 : STRIDE,
                  COLUMN_STRIDE = OPERATION::B_COLUMN_MAJOR ? STRIDE : 1;
    const auto* warp_tile = stage.b.units + TILE::warp_column() * COLUMN_STRIDE;
    load_shared_fragment<OPERATION>(b, warp_tile + k_offset * K_STRIDE + j * OPERATION::FN * COLUMN_STRIDE, STRIDE);
}

template <typename OPERATION, typename TILE>
struct Fragments {
    static constexpr int ROWS = TILE::WM / OPERATION::FM, COLUMNS = TILE::WN / OPERATION::FN;
    typename OPERATION::A a[ROWS];
    typename OPERATION::B b[COLUMNS];

    // Loads all of this warp's fragments for the units [k_offset, k_offset + K_BLOCK) along K of the stage.
    template <int PAD>
    __device__ __forceinline__ void load(const Stage<OPERATION, TILE, PAD>& stage, int k_offset) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) load_a(a[i], stage, i, k_offset);
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) load_b(b[j], stage, j, k_offset);
    }
};

// One fragment of A with each fragment of B: row `i` of the warp's outer product. ZIGZAG runs every other row
// backwards, so that two consecutive MMAs always share an operand.
template <bool ZIGZAG, typename OPERATION, typename TILE, int COLUMNS>
__device__ __forceinline__ void multiply_row(Accumulators<OPERATION, TILE>& accumulators, int i,
                                             const typename OPERATION::A& a,
                                             const typename OPERATION::B (&b)[COLUMNS]) {
#pragma unroll
    for (int number = 0; number < COLUMNS; ++number) {
        const int j = ZIGZAG && i % 2 ? COLUMNS - 1 - number : number;
        multiply_fragments<OPERATION>(accumulators.at[i][j], a, b[j]);
    }
}

// The warp's outer product of one k-block: every A fragment with every B fragment.
template <bool ZIGZAG = false, typename OPERATION, typename TILE>
__device__ __forceinline__ void multiply(Accumulators<OPERATION, TILE>& accumulators,
                                         const Fragments<OPERATION, TILE>& fragments) {
#pragma unroll
    for (int i = 0; i < Accumulators<OPERATION, TILE>::ROWS; ++i)
        multiply_row<ZIGZAG>(accumulators, i, fragments.a[i], fragments.b);
}

// All k-blocks of a stage, one set of fragments.
template <int PAD, typename OPERATION, typename TILE>
__device__ __forceinline__ void multiply_stage(Accumulators<OPERATION, TILE>& accumulators,
                                               const Stage<OPERATION, TILE, PAD>& stage) {
    static_assert(TILE::BK % OPERATION::K_BLOCK == 0, "a stage is a whole number of fragments deep");
#pragma unroll
    for (int k_offset = 0; k_offset < TILE::BK; k_offset += OPERATION::K_BLOCK) {
        Fragments<OPERATION, TILE> fragments;
        fragments.load(stage, k_offset);
        multiply(accumulators, fragments);
    }
}

}  // namespace warptile
