// One warp computes a 16 x 8 tile of D = A B with mma.sync.m16n8k16; B is stored [n, k].
#include <cuda_fp16.h>
#include "ptx/mma.cuh"
using namespace warptile;

using MMA = Mma<__half, float, 16, 8, 16>;

// c += A B for the 16 x 16 elements of A that begin at a and the 16 x 8 of B that begin at b: one instruction.
__device__ void multiply(float (&c)[4], const __half* a, const __half* b, int k) {
    const int group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    const auto two = [&](const __half* at) { return *reinterpret_cast<const unsigned*>(at); };
    const __half *upper = &a[group * k + pair], *lower = upper + 8 * k, *of_b = &b[group * k + pair];
    const unsigned left[4] = {two(upper), two(lower), two(upper + 8), two(lower + 8)};
    const unsigned right[2] = {two(of_b), two(of_b + 8)};
    MMA::mma_sync(c, left, right);
}

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    const int row = blockIdx.y * 16, column = blockIdx.x * 8, group = threadIdx.x / 4, pair = threadIdx.x % 4 * 2;
    float c[4] = {};
    // K is longer than one instruction.
    multiply(c, &a[row * k], &b[column * k], k);  // HOLE
    for (int k0 = 0; k0 < k; k0 += 16) multiply(c, &a[row * k + k0], &b[column * k + k0], k);  // ANSWER
    *reinterpret_cast<float2*>(&d[(row + group) * n + column + pair]) = {c[0], c[1]};
    *reinterpret_cast<float2*>(&d[(row + group + 8) * n + column + pair]) = {c[2], c[3]};
}
