// Mistake: the copy to D is never committed to a bulk group, so that `cp.async.bulk.wait_group.read` has nothing to
// wait for.
// On a GPU: right while no other block comes; else parts of D are another block's tiles.
// Fix: `cp.async.bulk.commit_group` behind the copy.
#include "hopper.h"

template <bool CORRECT>
__global__ void product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
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
    fence_async_proxy();
    named_barrier<CONSUMERS>(1);
    if (threadIdx.x == 0) {
        store(d, blockIdx.x * BN, blockIdx.y * BM, out);  // REPORTED: copied
        if (CORRECT) store_commit_group();                // MISTAKE
        store_wait_group_read<0>();
    }
}
