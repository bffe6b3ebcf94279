// Mistake: products of two tiles may be under way, which is what `wait_group 1` allows, but the stage that is released
// behind it is that of the latest tile and not that of the one before.
// On a GPU: wrong sums now and then, when a copy overtakes the products.
// Fix: release the stage of the tile before, or wait for all groups.
#include "hopper.h"

template <bool CORRECT>
__global__ void product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
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
        commit_products();
        sum.wait<CORRECT ? 0 : 1>();  // MISTAKE
        arrive(ring.empty[s]);
    }
    sum.wait<0>();
    sum.store(d, n);
}
