// Mistake: the consumers wait for one stage and multiply the next one, as an index was advanced between the two.
// On a GPU: wrong sums, of tiles that are still on their way or of those of the round before.
// Fix: wait for the stage that is multiplied.
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
        wait(ring.full[s], round % 2);
        sum.fence();
        sum.multiply(ring.stages[CORRECT ? s : (s + 1) % STAGES]);  // MISTAKE, REPORTED: read
        commit_products();
        sum.wait<0>();
        arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
