// Bug: K is not a multiple of 64. The producer copies whole k-blocks only; the consumers round up and multiply what
// their stage holds for the last one.
// On a GPU: A wrong result: what the stage holds from earlier rounds is multiplied again.
// Fix: Both round up. TMA fills with zeros beyond the end of K.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = (k + BK - 1) / BK;
    ring.start();
    const int copied = CORRECT ? tiles : k / BK;  // BUG
    if (producing()) ring.produce(a, b, copied);
    if (!consuming()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        if (tile < copied) wait(ring.full[s], round % 2);
        sum.fence();
        sum.multiply(ring.stages[s]);
        commit_wgmma();
        sum.wait<0>();
        if (tile < copied) arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
