// One warp computes a 16 x 8 tile of D = A B with mma.sync; B is stored [n, k]. Fragments come from global memory.
#include <cuda_fp16.h>
#include "ptx/mma.cuh"
using namespace warptile;

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    const int row = blockIdx.y * 16, column = blockIdx.x * 8, lane = threadIdx.x;
    const int group = lane / 4, pair = lane % 4 * 2;  // a row of A and a column of B; two neighbours along K
    float c[4] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        const auto two = [&](const __half* at) { return *reinterpret_cast<const unsigned*>(at); };
        const __half* upper = &a[(row + group) * k + k0 + pair];
        const __half* lower = upper + 8 * k;
        const __half* of_b = &b[(column + group) * k + k0 + pair];
        const unsigned left[4] = {two(upper), two(lower), two(upper + 8), two(lower + 8)};
        const unsigned right[2] = {two(of_b), two(of_b + 8)};
        MMA::mma_sync(c, left, right);
    }
    // Store c[0] to c[3] where they belong in D.
    for (int i = 0; i < 4; ++i) d[(row + lane / 2) * n + column + lane % 2 * 4 + i] = c[i];  // HOLE
    *reinterpret_cast<float2*>(&d[(row + group) * n + column + pair]) = {c[0], c[1]};  // ANSWER
    *reinterpret_cast<float2*>(&d[(row + group + 8) * n + column + pair]) = {c[2], c[3]};  // ANSWER
}
