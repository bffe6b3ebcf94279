// Bug: The accumulators of the last tile are stored while its `wgmma`s are in flight. The code waits one tile late, to
// overlap the next copies, and forgets the group that is left after the loop.
// On a GPU: ptxas inserts a wait and serializes the `wgmma`s, with a warning (C7518) that warptile treats as an error;
// without that, old accumulators.
// Fix: `wgmma.wait_group 0` after the loop.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (producing()) ring.produce(a, b, tiles);
    if (!consuming()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        wait(ring.full[s], round % 2);
        sum.fence();
        sum.multiply(ring.stages[s]);  // REPORTED: multiplied
        commit_wgmma();
        sum.wait<1>();
        if (tile > 0) arrive(ring.empty[(tile - 1) % STAGES]);
    }
    if (CORRECT) sum.wait<0>();  // BUG
    sum.store(d, n);             // REPORTED: read
}
