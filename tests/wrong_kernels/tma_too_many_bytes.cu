// Bug: The producer assumes that the tile of B is as large as that of A and expects more bytes than arrive.
// On a GPU: Hangs: the phase never completes.
// Fix: Expect the bytes of the tensor maps' boxes.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (consuming()) {
        ring.consume(sum, tiles);  // REPORTED: waits
        sum.store(d, n);
    }
    if (!producing()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        wait(ring.empty[s], (round + 1) % 2);
        expect(ring.full[s], CORRECT ? sizeof(Stage) : 2 * sizeof(Stage::a));  // BUG
        ring.copy(a, b, tile);
    }
}
