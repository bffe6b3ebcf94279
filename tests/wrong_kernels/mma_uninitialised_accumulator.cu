// Mistake: the accumulators are declared and never set to zero.
// On a GPU: whatever the registers held; that may be zero, so that the first test passes.
// Fix: `float sum[2][4] = {};`
#include "ptx/matrix_move.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"
#include "warp_mma.h"

template <bool CORRECT>
__global__ void product(const __half* a, const __half* b, float* d, int m, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    __shared__ Tiles tiles;
    unsigned a_fragment[4], b_fragments[4];
    float sum[2][4];
    if (CORRECT)  // MISTAKE
        for (int i = 0; i < 8; ++i) sum[i / 4][i % 4] = 0;
    for (int depth = 0; depth < k; depth += 16) {
        fill(tiles, a, b, n, k, depth);
        __syncwarp();
        load_a(a_fragment, tiles);
        load_b(b_fragments, tiles);
        MMA::multiply(sum[0], a_fragment, b_fragments);  // REPORTED: used
        MMA::multiply(sum[1], a_fragment, b_fragments + 2);
        __syncwarp();
    }
    store(d, n, sum);
}
