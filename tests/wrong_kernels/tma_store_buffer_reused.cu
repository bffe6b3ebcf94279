// Mistake: D leaves through shared memory in two halves and one buffer. The second half is written while the copy may
// still read the first.
// On a GPU: parts of the second half where the first belongs, when the copy is late.
// Fix: `cp.async.bulk.wait_group.read` by the thread that copies, then a barrier, before the buffer is written again.
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
        if (CORRECT && threadIdx.x == 0) store_wait_group_read<0>();  // MISTAKE
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
