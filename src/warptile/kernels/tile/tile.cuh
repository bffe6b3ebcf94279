// The three levels of tiling: block tile, warp tile, fragment; and a block tile's operands in shared memory.
#pragma once

#include "tile/operation.cuh"

namespace warptile {

// A block computes BM x BN of D, BK units of depth at a time; each of its warps owns WM x WN of that.
template <int BM_, int BN_, int BK_, int WM_, int WN_>
struct Tile {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_;
    static constexpr int WARPS_M = BM / WM, WARPS_N = BN / WN, WARPS = WARPS_M * WARPS_N;
    static constexpr int THREADS = WARPS * 32;
    static_assert(BM % WM == 0 && BN % WN == 0, "a block tile is a whole number of warp tiles");
    static_assert(THREADS <= 1024, "a block has at most 1024 threads");

    // Where this thread's warp tile starts in the block tile.
    static __device__ __forceinline__ int warp_row() { return threadIdx.x / 32 / WARPS_N * WM; }
    static __device__ __forceinline__ int warp_column() { return threadIdx.x / 32 % WARPS_N * WN; }
};

// A rectangle of an operand in shared memory: ROWS rows of COLUMNS units, each followed by PAD units of nothing.
template <typename ELEMENT_, int ROWS_, int COLUMNS_, int PAD>
struct __align__(128) SharedTile {
    using ELEMENT = ELEMENT_;
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_;
    static constexpr int UNIT = 16 / sizeof(ELEMENT);                                // wmma loads need rows 16 bytes apart
    static constexpr int STRIDE = (COLUMNS + PAD + UNIT - 1) / UNIT * UNIT;
    ELEMENT units[ROWS * STRIDE];
};

// One step of depth BK: a BM x BK tile of A and a BK x BN tile of B, each in the major of its matrix.
template <typename OPERATION, typename TILE, int PAD>
struct Stage {
    static constexpr bool COLUMN_MAJOR = OPERATION::B_COLUMN_MAJOR;
    SharedTile<typename OPERATION::ELEMENT, TILE::BM, TILE::BK, PAD> a;
    SharedTile<typename OPERATION::ELEMENT, COLUMN_MAJOR ? TILE::BN : TILE::BK, COLUMN_MAJOR ? TILE::BK : TILE::BN, PAD>
        b;
};

// One accumulator fragment a warp, on its way out; the pad spreads rows over banks.
template <typename OPERATION, int COLUMNS = OPERATION::FN>
struct __align__(128) Patch {
    static constexpr int STRIDE = COLUMNS + 16 / sizeof(typename OPERATION::ACCUMULATOR);
    typename OPERATION::ACCUMULATOR elements[OPERATION::FM * STRIDE];
};

// A block's shared memory: stages while it multiplies, patches once it stores.
template <typename OPERATION, typename TILE, int PAD = 0, int STAGES = 1, int PATCH_COLUMNS = OPERATION::FN>
union BlockMemory {
    Stage<OPERATION, TILE, PAD> stages[STAGES];
    Patch<OPERATION, PATCH_COLUMNS> patches[TILE::WARPS];
};

}  // namespace warptile
