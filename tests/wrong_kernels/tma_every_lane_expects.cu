// Bug: Every lane of the producer warp arrives at the full barrier and expects the bytes, but only one of them copies.
// The mbarrier counts one arrival, and the bytes arrive once.
// On a GPU: Hangs, or phases complete at the wrong time: arrivals beyond the count are undefined.
// Fix: One lane both expects and copies.
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
    if (consuming() || (CORRECT && !producing())) return;  // BUG
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        wait(ring.empty[s], (round + 1) % 2);
        expect(ring.full[s], sizeof(Stage));  // REPORTED: arrived
        if (producing()) ring.copy(a, b, tile);
    }
}
