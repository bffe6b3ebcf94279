// Bug: K is not a multiple of 64, and the producer expects only those bytes of the last boxes that lie inside the
// matrices. A copy delivers, and counts, whole boxes: zeros outside the matrix.
// On a GPU: Hangs: more bytes arrive than were expected, and the phase does not complete.
// Fix: Always expect whole boxes.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = (k + BK - 1) / BK;
    ring.start();
    if (consuming()) {
        ring.consume(sum, tiles);  // REPORTED: waits
        sum.store(d, n);
    }
    if (!producing()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        wait(ring.empty[s], (round + 1) % 2);
        const int inside = k - tile * BK < BK ? k - tile * BK : BK;
        expect(ring.full[s], CORRECT ? sizeof(Stage) : (BM + BN) * inside * sizeof(Half));  // BUG
        ring.copy(a, b, tile);
    }
}
