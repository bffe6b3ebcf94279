// A block tile's operands in shared memory, and its warps' fragments in the epilogue.
#pragma once

#include "tile/block_tile.cuh"
#include "tile/wmma_operation.cuh"

namespace warptile {

// A rectangle of an operand in shared memory: ROWS rows of COLUMNS units, each followed by PAD units of padding.
template <typename ELEMENT_, int ROWS_, int COLUMNS_, int PAD>
struct __align__(128) SharedTile {
    using ELEMENT = ELEMENT_;
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_;
    static constexpr int UNIT = 16 / sizeof(ELEMENT);  // wmma loads need rows 16 bytes apart
    static constexpr int STRIDE = (COLUMNS + PAD + UNIT - 1) / UNIT * UNIT;
    ELEMENT units[ROWS * STRIDE];
};

// One K tile: a BM x BK tile of A and a BK x BN tile of B, each in the major of its matrix.
template <typename OPERATION, typename TILE, int PAD>
struct Stage {
    static constexpr bool COLUMN_MAJOR = OPERATION::B_COLUMN_MAJOR;
    SharedTile<typename OPERATION::ELEMENT, TILE::BM, TILE::BK, PAD> a;
    SharedTile<typename OPERATION::ELEMENT, COLUMN_MAJOR ? TILE::BN : TILE::BK, COLUMN_MAJOR ? TILE::BK : TILE::BN, PAD>
        b;
};

// One accumulator fragment of a warp in the epilogue. Without a pad: a warp reads it back 32 elements in a row.
template <typename OPERATION>
struct __align__(128) Patch {
    static constexpr int STRIDE = OPERATION::FN;
    typename OPERATION::ACCUMULATOR elements[OPERATION::FM * STRIDE];
};

// A row of a warp's fragments, FM x COLUMNS, in the epilogue. Lanes read vectors of it that lie 32 bytes apart: 16
// bytes of padding after each 128 send the other half of a quarter-warp to the banks in between.
template <typename OPERATION, int COLUMNS>
struct __align__(128) RowPatch {
    using ACCUMULATOR = typename OPERATION::ACCUMULATOR;
    static constexpr int LINE = 128 / sizeof(ACCUMULATOR), GAP = 16 / sizeof(ACCUMULATOR);
    static __device__ constexpr int skewed(int column) { return column + column / LINE * GAP; }
    static constexpr int STRIDE = COLUMNS + (COLUMNS + LINE - 1) / LINE * GAP;
    ACCUMULATOR elements[OPERATION::FM * STRIDE];
};

// A block's shared memory: stages while it multiplies, patches once it stores.
template <typename OPERATION, typename TILE, int PAD = 0, int STAGES = 1, typename PATCH = Patch<OPERATION>>
union BlockMemory {
    Stage<OPERATION, TILE, PAD> stages[STAGES];
    PATCH patches[TILE::WARPS];
};

}  // namespace warptile
