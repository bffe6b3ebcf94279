// Bug: The consumers release a stage when they have issued the `wgmma`s that read it. These are asynchronous: they may
// still read when the producer refills the stage.
// On a GPU: Now and then wrong results, when a copy overtakes the `wgmma`s.
// Fix: Wait for the `wgmma`s, then arrive at the empty barrier.
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
        if (!CORRECT) arrive(ring.empty[s]);  // BUG
        sum.wait<0>();
        if (CORRECT) arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
