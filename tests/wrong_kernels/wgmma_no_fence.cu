// Mistake: no `wgmma.fence` stands between the zeros that are written to the sums and the first product that adds to
// them.
// On a GPU: ptxas inserts the fence and lets each product wait for the one before, with a warning (C7520), which
// warptile takes for an error; without that, sums that start with anything.
// Fix: `wgmma.fence` before the first product, and whenever other instructions have touched its registers.
#include "hopper.h"

template <bool CORRECT>
__global__ void product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
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
        if (CORRECT) sum.fence();      // MISTAKE
        sum.multiply(ring.stages[s]);  // REPORTED: multiplied
        commit_products();
        sum.wait<0>();
        arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
