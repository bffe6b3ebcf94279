// Bug: The accumulators are stored to shared memory and copied from there to D. A barrier separates the two, but the
// stores use the generic proxy and the copy reads through the async proxy, which need not see them.
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
    if (CORRECT) fence_proxy_async();                                          // BUG
    bar_sync<CONSUMERS>(1);
    if (threadIdx.x == 0) {
        store(d, blockIdx.x * BN, blockIdx.y * BM, out);  // REPORTED: copied
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<0>();
    }
}
