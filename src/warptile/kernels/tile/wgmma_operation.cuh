// What a Hopper kernel multiplies: element types, layouts, and how it accumulates.
#pragma once

#include "ptx/wgmma.cuh"
#include "tile/gemm.cuh"
#include "tile/scale.cuh"
#include "tile/traits.cuh"

namespace warptile {

template <typename ELEMENT_, typename ACCUMULATOR_, typename OUT_, bool A_COLUMN_MAJOR_, bool B_COLUMN_MAJOR_,
          bool D_COLUMN_MAJOR_>
struct WgmmaOperation {
    using ELEMENT = ELEMENT_;
    using ACCUMULATOR = ACCUMULATOR_;
    using OUT = OUT_;
    // How the instruction accumulates, and the type of one accumulator element.
    using MMA_ACCUMULATOR = typename Choice<SAME<ACCUMULATOR, fast_float>, float, ACCUMULATOR>::type;
    using ACC_ELEMENT = typename Choice<SAME<ACCUMULATOR, saturating_int>, int, MMA_ACCUMULATOR>::type;
    using SCALE = typename Scale<ACC_ELEMENT>::type;
    static constexpr int ELEMENTS_PER_UNIT = ELEMENTS_IN<ELEMENT>;
    static constexpr bool A_COLUMN_MAJOR = A_COLUMN_MAJOR_, B_COLUMN_MAJOR = B_COLUMN_MAJOR_;
    static constexpr bool D_COLUMN_MAJOR = D_COLUMN_MAJOR_;
    static constexpr bool FLOAT8 = SAME<ELEMENT, float8_e4m3> || SAME<ELEMENT, float8_e5m2>;
    // Two-level accumulation: the instruction keeps few bits of FP8 sums, so they are promoted to float32 registers.
    static constexpr bool PROMOTED = FLOAT8 && SAME<ACCUMULATOR, float>;
};

// A CTA computes BM x BN of D in K tiles of BK units.
template <int BM_, int BN_, int BK_>
struct WgmmaTile {
    static constexpr int BM = BM_, BN = BN_, BK = BK_;
    static_assert(BM % 64 == 0 && BN % 8 == 0, "wgmma multiplies 64 rows by a multiple of 8 columns");
};

}  // namespace warptile
