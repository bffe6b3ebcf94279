// Mistake: the sums of the last tile are stored while its products are still under way. The code waits one tile late,
// so that the next copies overlap the products, and forgets that one group is left after the loop.
// On a GPU: ptxas inserts a wait and lets each product wait for the one before, with a warning (C7518), which warptile
// takes for an error; without that, old sums.
// Fix: `wgmma.wait_group 0` behind the loop.
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
        sum.fence();
        sum.multiply(ring.stages[s]);  // REPORTED: multiplied
        commit_products();
        sum.wait<1>();
        if (tile > 0) arrive(ring.empty[(tile - 1) % STAGES]);
    }
    if (CORRECT) sum.wait<0>();  // MISTAKE
    sum.store(d, n);             // REPORTED: read
}
