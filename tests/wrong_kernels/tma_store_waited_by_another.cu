// Bug: Thread 0 starts the copies to D, and thread 32 waits until they have read the buffer. Bulk groups belong to the
// thread that committed them: for thread 32 there is nothing to wait for.
// On a GPU: Parts of the second half where the first belongs, when the copy is late.
// Fix: The copying thread also waits.
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
        if (threadIdx.x == (CORRECT ? 0 : 32)) cp_async_bulk_wait_group_read<0>();  // BUG
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
