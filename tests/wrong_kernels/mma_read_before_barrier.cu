// Bug: `ldmatrix` follows the stores that fill the tiles without a barrier, although it returns to a lane what other
// lanes stored.
// On a GPU: Right as long as the lanes of the warp happen to stay converged.
// Fix: `__syncwarp()`, or `__syncthreads()` where several warps fill the tiles.
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
        fill(tiles, a, b, n, k, k0);  // REPORTED: written
        if (CORRECT) __syncwarp();       // BUG
        load_a(a_fragment, tiles);       // REPORTED: read
        load_b(b_fragments, tiles);
        MMA::mma_sync(sum[0], a_fragment, b_fragments);
        MMA::mma_sync(sum[1], a_fragment, b_fragments + 2);
        __syncwarp();
    }
    store(d, n, sum);
}
