// Bug: The epilogue stores all four registers of a fragment to row g. The last two belong to row g + 8.
// On a GPU: Rows 8 to 15 of each tile keep their old values, the others hold theirs.
// Fix: Registers 2 and 3 go 8 rows further down.
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared_memory.cuh"
#include "warp_mma.h"

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    __shared__ Tiles tiles;
    unsigned a_fragment[4], b_fragments[4];
    float sum[2][4] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        fill(tiles, a, b, n, k, k0);
        __syncwarp();
        load_a(a_fragment, tiles);
        load_b(b_fragments, tiles);
        MMA::mma_sync(sum[0], a_fragment, b_fragments);
        MMA::mma_sync(sum[1], a_fragment, b_fragments + 2);
        __syncwarp();
    }
    const int row = blockIdx.y * 16 + threadIdx.x / 4, column = blockIdx.x * 16 + threadIdx.x % 4 * 2;
    for (int fragment = 0; fragment < 2; ++fragment)
        for (int i = 0; i < 4; ++i) {
            const int down = CORRECT ? i / 2 * 8 : 0;  // BUG
            d[(row + down) * n + column + fragment * 8 + i % 2] = sum[fragment][i];
        }
}
