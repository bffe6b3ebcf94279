// Four warps compute three tiles of 16 x 8 of D = A B; B is stored [n, k]. All steps along K of all tiles stand in one
// row, and each warp gets a quarter of it.
#include <cuda_fp16.h>
#include "ptx/mma.cuh"
using namespace warptile;

constexpr int TILES = 3, WARPS = 4;

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    __shared__ float sums[TILES][16][8];
    const int row = blockIdx.y * 16, column = blockIdx.x * 8 * TILES, warp = threadIdx.x / 32;
    const int group = threadIdx.x % 32 / 4, pair = threadIdx.x % 4 * 2;
    for (int i = threadIdx.x; i < TILES * 128; i += blockDim.x) sums[i / 128][i / 8 % 16][i % 8] = 0.0f;
    __syncthreads();
    const auto two = [&](const __half* at) { return *reinterpret_cast<const unsigned*>(at); };
    const int steps = k / 16, begin = warp * TILES * steps / WARPS, end = (warp + 1) * TILES * steps / WARPS;
    float c[4] = {};
    for (int step = begin; step < end; ++step) {
        const int tile = step / steps, k0 = step % steps * 16;
        const __half *upper = &a[(row + group) * k + k0 + pair], *lower = upper + 8 * k;
        const __half* of_b = &b[(column + 8 * tile + group) * k + k0 + pair];
        const unsigned left[4] = {two(upper), two(lower), two(upper + 8), two(lower + 8)};
        const unsigned right[2] = {two(of_b), two(of_b + 8)};
        MMA::mma_sync(c, left, right);
        // When does a warp add what it has to the tile?
        const bool last = step + 1 == end;  // HOLE
        const bool last = step + 1 == end || (step + 1) % steps == 0;  // ANSWER
        if (last) {
            for (int i = 0; i < 4; ++i) {
                atomicAdd(&sums[tile][group + i / 2 * 8][pair + i % 2], c[i]);
                c[i] = 0.0f;
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < TILES * 128; i += blockDim.x)
        d[(row + i / 8 % 16) * n + column + i / 128 * 8 + i % 8] = sums[i / 128][i / 8 % 16][i % 8];
}
