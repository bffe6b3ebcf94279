// Bug: The producer expects the bytes of A and forgets those of B. The phase completes when that many have arrived,
// whichever they are, and later bytes count for the next phase.
// On a GPU: Wrong results where B arrives last; later phases are off, and it may hang.
// Fix: Expect all bytes that the stage's copies bring: the boxes of A and of B.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (consuming()) {
        ring.consume(sum, tiles);  // REPORTED: read
        sum.store(d, n);
    }
    if (!producing()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        wait(ring.empty[s], (round + 1) % 2);
        expect(ring.full[s], CORRECT ? sizeof(Stage) : sizeof(Stage::a));  // BUG
        ring.copy(a, b, tile);  // REPORTED: copied
    }
}
