// Bug: The empty barriers count every thread of the warpgroup, but one lane of each warp arrives.
// On a GPU: Hangs in the second round, when the producer waits for 124 more arrivals.
// Fix: Initialize an mbarrier with the number of arrivals that will happen.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start(1, CORRECT ? CONSUMERS / 32 : CONSUMERS);  // BUG
    if (producing()) ring.produce(a, b, tiles);           // REPORTED: waits
    if (!consuming()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        wait(ring.full[s], round % 2);
        sum.fence();
        sum.multiply(ring.stages[s]);
        commit_wgmma();
        sum.wait<0>();
        if (threadIdx.x % 32 == 0) arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
