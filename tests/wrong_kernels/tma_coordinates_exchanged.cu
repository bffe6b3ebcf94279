// Bug: The copies of A pass the row first and K second. Tensor-map coordinates start with the innermost dimension: K,
// for a row-major A.
// On a GPU: A wrong result: boxes from other positions, and zeros where those lie outside of A. No error.
// Fix: Innermost coordinate first.
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
        wait(ring.empty[s], (round + 1) % 2);
        expect(ring.full[s], sizeof(Stage));
        const int row = blockIdx.y * BM, column = blockIdx.x * BN, k0 = tile * BK;
        load(ring.stages[s].a, a, CORRECT ? k0 : row, CORRECT ? row : k0, ring.full[s]);  // BUG
        load(ring.stages[s].b, b, k0, column, ring.full[s]);
    }
}
