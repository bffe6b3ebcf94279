// Bug: The consumers wait for the parity of the phase before the one that they need. For a freshly initialized
// mbarrier phase -1 counts as complete, so each wait passes one round too early.
// On a GPU: The first tiles are multiplied before they have arrived, or it hangs: where the copies are fast, the
// consumers wait for a round that never follows.
// Fix: Consumers start with parity 0; only the producer, whose stages are empty at first, starts with 1.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (producing()) ring.produce(a, b, tiles);  // REPORTED: copied
    if (!consuming()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        wait(ring.full[s], CORRECT ? round % 2 : (round + 1) % 2);  // BUG
        sum.fence();
        sum.multiply(ring.stages[s]);  // REPORTED: read
        commit_wgmma();
        sum.wait<0>();
        arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
