// Mistake: the depth is no multiple of 64. The producer copies whole tiles only; the consumers count the rest as one
// tile more and take for it what lies in its stage.
// On a GPU: a wrong product: what the stage holds of some rounds before is multiplied again.
// Fix: both round up. The copies fill with zeros what lies beyond the depth.
#include "hopper.h"

template <bool CORRECT>
__global__ void product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = (k + BK - 1) / BK;
    ring.start();
    const int copied = CORRECT ? tiles : k / BK;  // MISTAKE
    if (producing()) ring.produce(a, b, copied);
    if (!consuming()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        if (tile < copied) wait(ring.full[s], round % 2);
        sum.fence();
        sum.multiply(ring.stages[s]);
        commit_products();
        sum.wait<0>();
        if (tile < copied) arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
