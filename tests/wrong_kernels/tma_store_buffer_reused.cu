// Bug: D leaves through shared memory in two halves and one buffer. The second half is written while the copy may
// still read the first.
// On a GPU: Parts of the second half where the first belongs, when the copy is late.
// Fix: `cp.async.bulk.wait_group.read` by the copying thread, then a barrier, before the buffer is reused.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                        const __grid_constant__ TensorMap d, int k) {
    __shared__ Ring ring;
    __shared__ alignas(128) float out[BM][BN / 2];
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (producing()) ring.produce(a, b, tiles);
    if (!consuming()) return;
    ring.consume(sum, tiles);
    for (int half = 0; half < 2; ++half) {
        if (CORRECT && threadIdx.x == 0) cp_async_bulk_wait_group_read<0>();  // BUG
        bar_sync<CONSUMERS>(1);
        for (int i = 0; i < 8; ++i) out[sum.row(i)][sum.column(i)] = sum.sum[half * 8 + i];  // REPORTED: written
        fence_proxy_async();
        bar_sync<CONSUMERS>(1);
        if (threadIdx.x == 0) {
            store(d, blockIdx.x * BN + half * BN / 2, blockIdx.y * BM, out);  // REPORTED: copied
            cp_async_bulk_commit_group();
        }
    }
    if (threadIdx.x == 0) cp_async_bulk_wait_group_read<0>();
}
