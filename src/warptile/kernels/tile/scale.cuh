// The epilogue's arithmetic: D = alpha * accumulator + beta * C.
#pragma once

namespace warptile {

// The type of alpha and beta: that of the accumulator, but float where accumulators are narrower than float.
template <typename ACCUMULATOR>
struct Scale {
    using type = float;
};
template <>
struct Scale<double> {
    using type = double;
};
template <>
struct Scale<int> {
    using type = int;
};

// One element of D. `c` is that element's address in C and is not touched when beta is zero: C may then be
// null, and NaNs in it do not reach D (BLAS's rule).
template <typename OUT, typename ACCUMULATOR>
__device__ __forceinline__ OUT scaled(ACCUMULATOR value, typename Scale<ACCUMULATOR>::type alpha,
                                      typename Scale<ACCUMULATOR>::type beta, const OUT* c) {
    using SCALE = typename Scale<ACCUMULATOR>::type;
    SCALE result = alpha * static_cast<SCALE>(value);
    if (beta != SCALE(0)) result += beta * static_cast<SCALE>(*c);
    return static_cast<OUT>(result);
}

// Number of tiles of `tile` elements that cover `extent`; unsigned, so that no legal extent overflows.
__device__ __forceinline__ unsigned tiles_along(int extent, unsigned tile) {
    return (static_cast<unsigned>(extent) + tile - 1) / tile;
}

}  // namespace warptile
