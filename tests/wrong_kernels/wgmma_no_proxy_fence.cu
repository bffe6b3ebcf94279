// Bug: The threads copy the tiles with ordinary stores and synchronize before the `wgmma`, which reads through the
// async proxy and need not see writes of the generic proxy.
// On a GPU: Right most of the time; now and then it multiplies what shared memory held before.
// Fix: `fence.proxy.async` by every thread after its stores, before the barrier.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const Half* a, const Half* b, float* d, int n, int k) {
    __shared__ Stage stage;
    Accumulator sum;
    for (int tile = 0; tile < k / BK; ++tile) {
        fill(stage, a, b, k, tile);        // REPORTED: written
        if (CORRECT) fence_proxy_async();  // BUG
        __syncthreads();
        sum.fence();
        sum.multiply(stage);  // REPORTED: read
        commit_wgmma();
        sum.wait<0>();
        __syncthreads();
    }
    sum.store(d, n);
}
