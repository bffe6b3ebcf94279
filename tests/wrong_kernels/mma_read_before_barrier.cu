// Mistake: `ldmatrix` follows the stores that fill the tiles without a barrier. It gives a lane what others stored.
// On a GPU: right as long as the lanes of the warp happen to stay together.
// Fix: `__syncwarp()`, or `__syncthreads()` where several warps fill the tiles.
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
        fill(tiles, a, b, n, k, depth);  // REPORTED: written
        if (CORRECT) __syncwarp();       // MISTAKE
        load_a(a_fragment, tiles);       // REPORTED: read
        load_b(b_fragments, tiles);
        MMA::multiply(sum[0], a_fragment, b_fragments);
        MMA::multiply(sum[1], a_fragment, b_fragments + 2);
        __syncwarp();
    }
    store(d, n, sum);
}
