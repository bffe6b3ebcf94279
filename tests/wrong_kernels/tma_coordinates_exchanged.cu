// Mistake: the copies of A give the row first and the depth second. A tensor map counts from the innermost dimension:
// the depth, for a row-major A.
// On a GPU: a wrong product: boxes of other places, and zeros where those lie outside of A. No error.
// Fix: innermost coordinate first.
#include "hopper.h"

template <bool CORRECT>
__global__ void product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
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
        wait(ring.empty[s], (round + 1) % 2);
        expect(ring.full[s], sizeof(Stage));
        const int row = blockIdx.y * BM, column = blockIdx.x * BN, depth = tile * BK;
        load(ring.stages[s].a, a, CORRECT ? depth : row, CORRECT ? row : depth, ring.full[s]);  // MISTAKE
        load(ring.stages[s].b, b, depth, column, ring.full[s]);
    }
}
