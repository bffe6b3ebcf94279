// Bug: The CTA exits as soon as the copy to D has been started. Its shared memory then belongs to the next CTA.
// On a GPU: Right while no other CTA follows; otherwise parts of D are another CTA's tiles.
// Fix: `cp.async.bulk.wait_group.read 0` before the copying thread returns.
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
    for (int i = 0; i < 16; ++i) out[sum.row(i)][sum.column(i)] = sum.sum[i];
    fence_proxy_async();
    bar_sync<CONSUMERS>(1);
    if (threadIdx.x == 0) {
        store(d, blockIdx.x * BN, blockIdx.y * BM, out);  // REPORTED: copied
        cp_async_bulk_commit_group();
        if (CORRECT) cp_async_bulk_wait_group_read<0>();  // BUG
    }
}
