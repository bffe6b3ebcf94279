// Bug: `wait_group 1` leaves the `wgmma`s of the latest tile in flight, but the stage released after it is that of the
// latest tile and not that of the one before.
// On a GPU: Now and then wrong results, when a copy overtakes the `wgmma`s.
// Fix: Release the stage of the previous tile, or wait for all groups.
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
        sum.multiply(ring.stages[s]);  // REPORTED: read
        commit_wgmma();
        sum.wait<CORRECT ? 0 : 1>();  // BUG
        arrive(ring.empty[s]);
    }
    sum.wait<0>();
    sum.store(d, n);
}
