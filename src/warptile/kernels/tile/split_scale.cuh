// Scales of float32 lines that are split into float16 slices: powers of two, one for each row of A and column of B.
#pragma once

namespace warptile {

// In the place of the exponent of a line that cannot be split.
inline constexpr int CANNOT_SPLIT = -2147483647 - 1;

// The largest exponent: two such scales together are undone by two normal powers of two.
inline constexpr int MOST_SPLIT_EXPONENT = 126;

// 2^exponent, from 2^-126 to 2^127.
__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

// 2^-exponent x for exponents between -252 and 252, without an intermediate result that overflows where this does not.
__device__ __forceinline__ float scaled_down(float x, int exponent) {
    const int half = -exponent >> 1;
    return x * power_of_two(half) * power_of_two(-exponent - half);
}

}  // namespace warptile
