// Bug: A has 48 rows, and the warp that owns the last 16 rows of the tile leaves the `wgmma` to the others, although
// it needs all four warps.
// On a GPU: Undefined: it may hang, or give right results to the other three.
// Fix: All four warps multiply; what lies outside is not stored.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int m,
                        int n, int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    const bool inside = threadIdx.x / 32 * 16 < m;
    ring.start();
    if (producing()) ring.produce(a, b, tiles);
    if (!consuming()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        wait(ring.full[s], round % 2);
        if (CORRECT || inside) {  // BUG
            sum.fence();
            sum.multiply(ring.stages[s]);  // REPORTED: multiplied
            commit_wgmma();
            sum.wait<0>();
        }
        arrive(ring.empty[s]);
    }
    if (inside) sum.store(d, n);
}
