// One warp computes a 16 x 8 tile of D = A B with f16 accumulators; B is stored [n, k]. Elements are 0 to 8.
#include <cuda_fp16.h>
#include "ptx/mma.cuh"
using namespace warptile;

// Two f16 accumulators from one register, the first in its lowest bits.
__device__ float2 two_floats(unsigned word) { return __half22float2(*reinterpret_cast<const __half2*>(&word)); }

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    using MMA = Mma<__half, __half, 16, 8, 16>;
    const int row = blockIdx.y * 16, column = blockIdx.x * 8, group = threadIdx.x / 4, pair = threadIdx.x % 4 * 2;
    const auto two = [&](const __half* at) { return *reinterpret_cast<const unsigned*>(at); };
    unsigned c[2] = {};
    float2 upper_sum = {}, lower_sum = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        const __half *upper = &a[(row + group) * k + k0 + pair], *lower = upper + 8 * k;
        const __half* of_b = &b[(column + group) * k + k0 + pair];
        const unsigned left[4] = {two(upper), two(lower), two(upper + 8), two(lower + 8)};
        const unsigned right[2] = {two(of_b), two(of_b + 8)};
        MMA::mma_sync(c, left, right);
        const float2 above = two_floats(c[0]), below = two_floats(c[1]);  // ANSWER
        upper_sum = {upper_sum.x + above.x, upper_sum.y + above.y};  // ANSWER
        lower_sum = {lower_sum.x + below.x, lower_sum.y + below.y};  // ANSWER
        c[0] = c[1] = 0;  // ANSWER
    }
    upper_sum = two_floats(c[0]);  // HOLE
    lower_sum = two_floats(c[1]);  // HOLE
    *reinterpret_cast<float2*>(&d[(row + group) * n + column + pair]) = upper_sum;
    *reinterpret_cast<float2*>(&d[(row + group + 8) * n + column + pair]) = lower_sum;
}
