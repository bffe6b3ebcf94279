// Bug: The parity that the consumers wait for flips with every tile. That of an mbarrier flips with every round of the
// pipeline.
// On a GPU: The second tile is multiplied before it has arrived; with the stages of later rounds it may hang.
// Fix: The parity of tile / STAGES.
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
        wait(ring.full[s], CORRECT ? round % 2 : tile % 2);  // BUG, REPORTED: read
        sum.fence();
        sum.multiply(ring.stages[s]);  // REPORTED: read
        commit_wgmma();
        sum.wait<0>();
        arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
