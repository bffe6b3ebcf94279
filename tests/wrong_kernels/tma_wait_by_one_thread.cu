// Bug: One thread of the warpgroup waits for the copies, and the others rely on it without a barrier.
// On a GPU: Mostly right, as the four warps multiply together; nothing guarantees that the others see the copied data.
// Fix: Every thread waits, or a barrier of the warpgroup follows the wait of one.
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
        if (CORRECT || threadIdx.x == CONSUMERS - 1) wait(ring.full[s], round % 2);  // BUG
        sum.fence();
        sum.multiply(ring.stages[s]);  // REPORTED: read
        commit_wgmma();
        sum.wait<0>();
        arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
