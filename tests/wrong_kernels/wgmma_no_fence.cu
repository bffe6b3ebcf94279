// Bug: No `wgmma.fence` separates the zeros written to the accumulators from the first `wgmma` that adds to them.
// On a GPU: ptxas inserts the fence and serializes the `wgmma`s, with a warning (C7520) that warptile treats as an
// error; without that, accumulators that start with anything.
// Fix: `wgmma.fence` before the first `wgmma`, and whenever other instructions have touched its registers.
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
        if (CORRECT) sum.fence();      // BUG
        sum.multiply(ring.stages[s]);  // REPORTED: multiplied
        commit_wgmma();
        sum.wait<0>();
        arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
