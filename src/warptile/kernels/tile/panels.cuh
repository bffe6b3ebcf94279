// One operand's part of a block tile in shared memory: panels, whose rows have at most 128 bytes.
#pragma once

#include "tile/swizzle.cuh"

namespace warptile {

// An operand of which a block needs EXTENT rows (of A) or columns (of B), K_EXTENT units deep. A *line* is what is
// contiguous in the matrix: with K_MAJOR the K_EXTENT units of one row of A (column of B), else the EXTENT units of one
// k-block. Lines are cut into panels of ROW_BYTES each; the panels follow each other.
template <typename ELEMENT_, int EXTENT_, int K_EXTENT_, bool K_MAJOR_, bool SWIZZLED_>
struct Panels {
    using ELEMENT = ELEMENT_;
    static constexpr int EXTENT = EXTENT_, K_EXTENT = K_EXTENT_, UNIT_BYTES = sizeof(ELEMENT);
    static constexpr bool K_MAJOR = K_MAJOR_, SWIZZLED = SWIZZLED_;
    static constexpr int LINES = K_MAJOR ? EXTENT : K_EXTENT;
    static constexpr int LINE_BYTES = (K_MAJOR ? K_EXTENT : EXTENT) * UNIT_BYTES;
    static constexpr int ROW_BYTES = LINE_BYTES < 128 ? LINE_BYTES : 128;
    static constexpr int PANEL_BYTES = LINES * ROW_BYTES;
    static constexpr int BYTES = EXTENT * K_EXTENT * UNIT_BYTES;
    static_assert(LINE_BYTES == 32 || LINE_BYTES == 64 || LINE_BYTES % 128 == 0, "lines of 32, 64 or n * 128 bytes");
    static_assert(LINES % 8 == 0, "swizzling exchanges chunks of eight rows");

    // Where byte `byte` of line `line` lies.
    static __device__ __forceinline__ constexpr unsigned offset(unsigned line, unsigned byte) {
        const unsigned inside = line * ROW_BYTES + byte % ROW_BYTES;
        return byte / ROW_BYTES * PANEL_BYTES + (SWIZZLED ? swizzled<ROW_BYTES>(inside) : inside);
    }
};

// One K tile in shared memory: a BM x BK tile of A, then a BK x BN tile of B.
template <typename OPERATION, typename TILE, bool SWIZZLED>
struct MmaStage {
    using A = Panels<typename OPERATION::ELEMENT, TILE::BM, TILE::BK, !OPERATION::A_COLUMN_MAJOR, SWIZZLED>;
    using B = Panels<typename OPERATION::ELEMENT, TILE::BN, TILE::BK, OPERATION::B_COLUMN_MAJOR, SWIZZLED>;
    static constexpr int BYTES = A::BYTES + B::BYTES;
    static constexpr int B_OFFSET = A::BYTES;
};

}  // namespace warptile
