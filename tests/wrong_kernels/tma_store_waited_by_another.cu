// Mistake: thread 0 starts the copies to D, and thread 32 waits until they have read the buffer. Bulk groups belong to
// the thread that committed them: for thread 32 there is nothing to wait for.
// On a GPU: parts of the second half where the first belongs, when the copy is late.
// Fix: the thread that copies also waits.
#include "hopper.h"

template <bool CORRECT>
__global__ void product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
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
        if (threadIdx.x == (CORRECT ? 0 : 32)) store_wait_group_read<0>();  // MISTAKE
        named_barrier<CONSUMERS>(1);
        for (int i = 0; i < 8; ++i) out[sum.row(i)][sum.column(i)] = sum.sum[half * 8 + i];  // REPORTED: written
        fence_async_proxy();
        named_barrier<CONSUMERS>(1);
        if (threadIdx.x == 0) {
            store(d, blockIdx.x * BN + half * BN / 2, blockIdx.y * BM, out);  // REPORTED: copied
            store_commit_group();
        }
    }
    if (threadIdx.x == 0) store_wait_group_read<0>();
}
