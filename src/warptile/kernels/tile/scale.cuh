// The epilogue's arithmetic: D = alpha * accumulator + beta * C.
#pragma once

#include "ptx/elements.cuh"

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

// Whether sums, and with them D, stop at the ends of int's range instead of wrapping around.
template <typename ACCUMULATOR>
inline constexpr bool SATURATES = false;
template <>
inline constexpr bool SATURATES<saturating_int> = true;

// alpha * value + beta * c, exact in 64 bits, then clamped to int. Each product is between -2^62 and 2^62: the second
// is kept below 2^62, so that their sum cannot reach 2^63. That changes no result: the first is above -2^62 + 2^31 - 1.
__device__ __forceinline__ int saturated_sum(int alpha, int value, int beta, int c) {
    constexpr long long LARGEST = (1LL << 31) - 1, SMALLEST = -(1LL << 31), BELOW = (1LL << 62) - 1;
    const long long addend = static_cast<long long>(beta) * c;
    const long long sum = static_cast<long long>(alpha) * value + (addend < BELOW ? addend : BELOW);
    return static_cast<int>(sum > LARGEST ? LARGEST : sum < SMALLEST ? SMALLEST : sum);
}

// a * b + c, of floats rounded once: left to the compiler, which of two products it fuses with an addition would differ
// from kernel to kernel, and with it the last bit of D.
__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }
__device__ __forceinline__ int multiply_add(int a, int b, int c) { return a * b + c; }

// One element of D. `c` is that element's address in C and is not touched when beta is zero: C may then be
// null, and NaNs in it do not reach D (BLAS's rule).
template <typename OUT, bool SATURATED = false, typename ACCUMULATOR, typename ADDEND>
__device__ __forceinline__ OUT scaled(ACCUMULATOR value, typename Scale<ACCUMULATOR>::type alpha,
                                      typename Scale<ACCUMULATOR>::type beta, const ADDEND* c) {
    using SCALE = typename Scale<ACCUMULATOR>::type;
    if constexpr (SATURATED) return saturated_sum(alpha, value, beta, beta != SCALE(0) ? *c : 0);
    SCALE result = alpha * static_cast<SCALE>(value);
    if (beta != SCALE(0)) result = multiply_add(beta, static_cast<SCALE>(*c), result);
    return static_cast<OUT>(result);
}

// Number of tiles of `tile` elements that cover `extent`; unsigned, so that no legal extent overflows.
__device__ __forceinline__ unsigned tiles_along(int extent, unsigned tile) {
    return (static_cast<unsigned>(extent) + tile - 1) / tile;
}

}  // namespace warptile
