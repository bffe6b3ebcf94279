// One warp computes a 16 x 8 tile of D = A B, with B column-major. A is staged in rows of 64 halves, 128 bytes.
#include <cuda_fp16.h>
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared_memory.cuh"
using namespace warptile;

constexpr int BK = 64;

// The 16-byte chunk of a row at which chunk `chunk` is kept.
__device__ int swizzled(int row, int chunk) {
    return chunk;  // WITHOUT
    return chunk ^ ((row & 0b1100) >> 2);  // AS PRINTED
    return chunk ^ (row & 7);  // MENDED
}

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    __shared__ alignas(128) uint4 tile[16][BK / 8];
    const int row = blockIdx.y * 16, column = blockIdx.x * 8, lane = threadIdx.x;
    float sum[4] = {};
    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int i = lane; i < 16 * BK / 8; i += 32) {
            const int y = i / 8, x = i % 8;
            tile[y][swizzled(y, x)] = *reinterpret_cast<const uint4*>(&a[(row + y) * k + k0 + x * 8]);
        }
        __syncwarp();
        for (int step = 0; step < BK / 16; ++step) {
            unsigned left[4], right[2];
            const int y = lane % 16, x = 2 * step + lane / 16;
            ldmatrix_x4<false>(left, shared_address(&tile[y][swizzled(y, x)]));
            const __half* of_lane = &b[(column + lane / 4) * k + k0 + 16 * step + lane % 4 * 2];
            right[0] = *reinterpret_cast<const unsigned*>(of_lane);
            right[1] = *reinterpret_cast<const unsigned*>(of_lane + 8);
            MMA::mma_sync(sum, left, right);
        }
        __syncwarp();
    }
    float* corner = &d[(row + lane / 4) * n + column + lane % 4 * 2];
    for (int i = 0; i < 4; ++i) corner[i / 2 * 8 * n + i % 2] = sum[i];
}
