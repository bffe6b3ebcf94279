// Bug: The first `wgmma` adds to registers that nothing has written: scale-d is true from the start.
// On a GPU: A wrong result, unless the registers happen to hold zeros.
// Fix: Zero the accumulators first, or pass scale-d false to the first `wgmma`.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum(CORRECT);  // BUG
    const int tiles = k / BK;
    ring.start();
    if (producing()) ring.produce(a, b, tiles);
    if (!consuming()) return;
    ring.consume(sum, tiles);  // REPORTED: multiplied
    sum.store(d, n);
}
