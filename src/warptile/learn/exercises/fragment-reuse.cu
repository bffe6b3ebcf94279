// One warp computes a 32 x 32 tile of D = A B; B is stored [n, k]. Rows of both tiles are padded: no bank conflicts.
#include <cuda_fp16.h>
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared_memory.cuh"
using namespace warptile;

constexpr int BM = 32, BN = 32, BK = 64, PAD = 8;

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    __shared__ alignas(16) __half a_tile[BM][BK + PAD], b_tile[BN][BK + PAD];
    const int row = blockIdx.y * BM, column = blockIdx.x * BN, lane = threadIdx.x;
    float c[2][4][4] = {};
    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int i = lane; i < BM * BK / 8; i += 32) {
            const int y = i / (BK / 8), x = i % (BK / 8) * 8;
            *reinterpret_cast<uint4*>(&a_tile[y][x]) = *reinterpret_cast<const uint4*>(&a[(row + y) * k + k0 + x]);
            *reinterpret_cast<uint4*>(&b_tile[y][x]) = *reinterpret_cast<const uint4*>(&b[(column + y) * k + k0 + x]);
        }
        __syncwarp();
        for (int step = 0; step < BK; step += 16) {
            // Rows 16 i to 16 i + 15 of A: the four registers of one fragment.
            const auto load_a = [&](unsigned(&left)[4], int i) {
                ldmatrix_x4<false>(left, shared_address(&a_tile[16 * i + lane % 16][step + lane / 16 * 8]));
            };
            // Rows 16 j to 16 j + 15 of B: two registers for columns 16 j to 16 j + 7 of D, and two for the next 8.
            const auto load_b = [&](unsigned(&right)[4], int j) {
                ldmatrix_x4<false>(
                    right, shared_address(&b_tile[16 * j + lane % 8 + lane / 16 * 8][step + lane / 8 % 2 * 8]));
            };
            for (int i = 0; i < 2; ++i)  // HOLE
                for (int j = 0; j < 4; ++j) {  // HOLE
                    unsigned left[4], right[4];  // HOLE
                    load_a(left, i);  // HOLE
                    load_b(right, j / 2);  // HOLE
                    MMA::mma_sync(c[i][j], left, &right[j % 2 * 2]);  // HOLE
                }  // HOLE
            unsigned left[2][4], right[2][4];  // ANSWER
            for (int i = 0; i < 2; ++i) {  // ANSWER
                load_a(left[i], i);  // ANSWER
                load_b(right[i], i);  // ANSWER
            }  // ANSWER
            for (int i = 0; i < 2; ++i)  // ANSWER
                for (int j = 0; j < 4; ++j) MMA::mma_sync(c[i][j], left[i], &right[j / 2][j % 2 * 2]);  // ANSWER
        }
        __syncwarp();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) {
            float* at = &d[(row + 16 * i + lane / 4) * n + column + 8 * j + lane % 4 * 2];
            *reinterpret_cast<float2*>(at) = {c[i][j][0], c[i][j][1]};
            *reinterpret_cast<float2*>(at + 8 * n) = {c[i][j][2], c[i][j][3]};
        }
}
