// Mistake: the second half of the warp skips the multiplication, as if the 16 rows of a fragment needed 16 lanes.
// On a GPU: undefined: `mma.sync.aligned` needs all 32 lanes.
// Fix: no condition that parts a warp around an `mma`.
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
        if (CORRECT || threadIdx.x < 16) {                   // MISTAKE
            MMA::multiply(sum[0], a_fragment, b_fragments);  // REPORTED: not together
            MMA::multiply(sum[1], a_fragment, b_fragments + 2);
        }
        __syncwarp();
    }
    store(d, n, sum);
}
