// Mistake: the epilogue gives all four registers of a fragment to row g. The last two belong to row g + 8.
// On a GPU: rows 8 to 15 of each tile keep what they were, the others hold their values.
// Fix: registers 2 and 3 go 8 rows further down.
#include "ptx/matrix_move.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"
#include "warp_mma.h"

template <bool CORRECT>
__global__ void product(const __half* a, const __half* b, float* d, int m, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    __shared__ Tiles tiles;
    unsigned a_fragment[4], b_fragments[4];
    float sum[2][4] = {};
    for (int depth = 0; depth < k; depth += 16) {
        fill(tiles, a, b, n, k, depth);
        __syncwarp();
        load_a(a_fragment, tiles);
        load_b(b_fragments, tiles);
        MMA::multiply(sum[0], a_fragment, b_fragments);
        MMA::multiply(sum[1], a_fragment, b_fragments + 2);
        __syncwarp();
    }
    const int row = blockIdx.y * 16 + threadIdx.x / 4, column = blockIdx.x * 16 + threadIdx.x % 4 * 2;
    for (int fragment = 0; fragment < 2; ++fragment)
        for (int i = 0; i < 4; ++i) {
            const int down = CORRECT ? i / 2 * 8 : 0;  // MISTAKE
            d[(row + down) * n + column + fragment * 8 + i % 2] = sum[fragment][i];
        }
}
