// Bug: The consumers wait for one stage and multiply the next, because an index was advanced between the two.
// On a GPU: Wrong results, from tiles in flight or from those of the previous round.
// Fix: Wait for the stage that is multiplied.
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
        wait(ring.full[s], round % 2);
        sum.fence();
        sum.multiply(ring.stages[CORRECT ? s : (s + 1) % STAGES]);  // BUG, REPORTED: read
        commit_wgmma();
        sum.wait<0>();
        arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
