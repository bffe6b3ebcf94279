// Bug: The `wgmma`s are never committed to a group, so `wgmma.wait_group` has nothing to wait for.
// On a GPU: Now and then wrong results, when a copy overtakes the `wgmma`s, or when the accumulators are stored before
// the last of them.
// Fix: `wgmma.commit_group` after the `wgmma`s of each tile.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (producing()) ring.produce(a, b, tiles);  // REPORTED: filled again
    if (!consuming()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        wait(ring.full[s], round % 2);
        sum.fence();
        sum.multiply(ring.stages[s]);    // REPORTED: multiplied
        if (CORRECT) commit_wgmma();  // BUG
        sum.wait<0>();
        arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
