// Mistake: the consumers wait for the parity of the phase before the one that they need. An mbarrier that has just been
// initialised takes phase -1 for complete, so each wait lets them through one round too early.
// On a GPU: the first tiles are multiplied before they have come, or it hangs: where the copies are fast, the consumers
// wait for a round that never follows.
// Fix: consumers start with parity 0; only the producer, whose stages are empty at first, starts with 1.
#include "hopper.h"

template <bool CORRECT>
__global__ void product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (producing()) ring.produce(a, b, tiles);  // REPORTED: copied
    if (!consuming()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        wait(ring.full[s], CORRECT ? round % 2 : (round + 1) % 2);  // MISTAKE
        sum.fence();
        sum.multiply(ring.stages[s]);  // REPORTED: read
        commit_products();
        sum.wait<0>();
        arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
