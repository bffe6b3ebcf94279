// Bug: Only the thread that copies the accumulators to D executes the proxy fence, before the barrier. It covers what
// this thread has written and what it has observed of others.
// On a GPU: Right most of the time; now and then parts of D are what shared memory held before.
// Fix: `fence.proxy.async` by every thread that has stored, before the barrier.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                        const __grid_constant__ TensorMap d, int k) {
    __shared__ Ring ring;
    __shared__ alignas(128) float out[BM][BN];
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (producing()) ring.produce(a, b, tiles);
    if (!consuming()) return;
    ring.consume(sum, tiles);
    for (int i = 0; i < 16; ++i) out[sum.row(i)][sum.column(i)] = sum.sum[i];  // REPORTED: written
    if (CORRECT || threadIdx.x == 0) fence_proxy_async();                      // BUG
    bar_sync<CONSUMERS>(1);
    if (threadIdx.x == 0) {
        store(d, blockIdx.x * BN, blockIdx.y * BM, out);  // REPORTED: copied
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<0>();
    }
}
