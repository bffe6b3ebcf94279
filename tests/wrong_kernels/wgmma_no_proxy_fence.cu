// Mistake: the threads copy the tiles themselves, with ordinary stores, and meet before the products. These read
// through the async proxy, which need not see what went through the generic one.
// On a GPU: right most of the time; now and then a product of what lay in shared memory before.
// Fix: `fence.proxy.async` by every thread behind its stores, before the barrier.
#include "hopper.h"

template <bool CORRECT>
__global__ void product(const Half* a, const Half* b, float* d, int n, int k) {
    __shared__ Stage stage;
    Accumulator sum;
    for (int tile = 0; tile < k / BK; ++tile) {
        fill(stage, a, b, k, tile);        // REPORTED: written
        if (CORRECT) fence_async_proxy();  // MISTAKE
        __syncthreads();
        sum.fence();
        sum.multiply(stage);  // REPORTED: read
        commit_products();
        sum.wait<0>();
        __syncthreads();
    }
    sum.store(d, n);
}
