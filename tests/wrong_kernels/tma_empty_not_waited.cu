// Bug: The producer fills the pipeline without waiting until a stage is empty: after the first round it copies into
// stages that consumers may still read.
// On a GPU: Wrong results once the copies are faster than the MMAs.
// Fix: Wait for the stage's empty barrier before the copies into it; the first round passes.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (consuming()) {
        ring.consume(sum, tiles);
        sum.store(d, n);
    }
    if (!producing()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        if (CORRECT) wait(ring.empty[s], (round + 1) % 2);  // BUG
        expect(ring.full[s], sizeof(Stage));  // REPORTED: filled again
        ring.copy(a, b, tile);  // REPORTED: filled again
    }
}
