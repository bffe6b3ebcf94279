// One warp computes a 16 x 8 tile of D = A B; B is stored [n, k]. A is staged in rows of 64 halves, 128 bytes.
#include <cuda_fp16.h>
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared_memory.cuh"
using namespace warptile;

constexpr int BK = 64, CHUNKS = BK / 8;

// At which of the eight places of its row is a 16-byte chunk kept?
__device__ int place(int row, int chunk) {
    return chunk;  // HOLE
    return chunk ^ (row & 7);  // ANSWER
}

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    __shared__ alignas(128) uint4 tile[16][CHUNKS];
    const int row = blockIdx.y * 16, column = blockIdx.x * 8, lane = threadIdx.x;
    float c[4] = {};
    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int i = lane; i < 16 * CHUNKS; i += 32) {
            const int y = i / CHUNKS, chunk = i % CHUNKS;
            tile[y][place(y, chunk)] = *reinterpret_cast<const uint4*>(&a[(row + y) * k + k0 + 8 * chunk]);
        }
        __syncwarp();
        for (int step = 0; step < BK / 16; ++step) {
            unsigned left[4], right[2];
            const int y = lane % 16, chunk = 2 * step + lane / 16;
            ldmatrix_x4<false>(left, shared_address(&tile[y][place(y, chunk)]));
            const __half* of_b = &b[(column + lane / 4) * k + k0 + 16 * step + lane % 4 * 2];
            right[0] = *reinterpret_cast<const unsigned*>(of_b);
            right[1] = *reinterpret_cast<const unsigned*>(of_b + 8);
            MMA::mma_sync(c, left, right);
        }
        __syncwarp();
    }
    *reinterpret_cast<float2*>(&d[(row + lane / 4) * n + column + lane % 4 * 2]) = {c[0], c[1]};
    *reinterpret_cast<float2*>(&d[(row + lane / 4 + 8) * n + column + lane % 4 * 2]) = {c[2], c[3]};
}
