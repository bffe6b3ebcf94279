// Bug: The second half of the warp skips the MMA, as if the 16 rows of a fragment needed 16 lanes.
// On a GPU: Undefined: `mma.sync.aligned` needs all 32 lanes.
// Fix: No condition that diverges within a warp around an `mma`.
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
        if (CORRECT || threadIdx.x < 16) {                   // BUG
            MMA::mma_sync(sum[0], a_fragment, b_fragments);  // REPORTED: not together
            MMA::mma_sync(sum[1], a_fragment, b_fragments + 2);
        }
        __syncwarp();
    }
    store(d, n, sum);
}
