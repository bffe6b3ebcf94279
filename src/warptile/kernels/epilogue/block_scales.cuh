// Scales of blocks of A and B, which are operands of an epilogue and are read by the mainloop.
#pragma once

namespace warptile {

// Elements along K of a block.
inline constexpr int SCALE_K = 128;

// An operand whose blocks have no scales.
struct NoBlockScales {
    static constexpr int LINES = 0;
};

// One scale for each block of LINES rows of A (columns of B) and SCALE_K elements along K. A row of the scales belongs
// to rows of A, or to elements along K of B. PAIRS: those of two neighbouring columns of B, the first one even, are
// read by one access. The host writes the members in the order of an EpilogueTensor's (epilogue/cuda.py).
template <typename ELEMENT_, int LINES_, bool PAIRS_>
struct BlockScales {
    using ELEMENT = ELEMENT_;
    static constexpr int LINES = LINES_;
    static constexpr bool PAIRS = PAIRS_;
    const ELEMENT* data;
    long long row_stride, column_stride, matrix_stride;
};

}  // namespace warptile
