// Bug: The copy to D is never committed to a bulk group, so `cp.async.bulk.wait_group.read` has nothing to wait for.
// On a GPU: Right while no other CTA follows; otherwise parts of D are another CTA's tiles.
// Fix: `cp.async.bulk.commit_group` after the copy.
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
        if (CORRECT) cp_async_bulk_commit_group();                // BUG
        cp_async_bulk_wait_group_read<0>();
    }
}
