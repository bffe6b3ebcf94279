// Bug: A CTA exits while TMA may still read its shared memory, which then belongs to the next CTA.
// Provoked by: Two CTAs fill an SM, and more of them follow, each of which first overwrites its shared memory. All SMs
// store at once, so that TMA is late.
// Fix: `cp.async.bulk.wait_group.read 0` before the thread returns.
#include "provoke.h"

constexpr int THREADS = 512, WORDS = 8192;

template <bool CORRECTED>
__global__ void pattern(unsigned* out) {
    __shared__ alignas(128) unsigned tile[WORDS];
    const unsigned first = blockIdx.x * WORDS;
    for (int i = threadIdx.x; i < WORDS; i += THREADS) weak_store_shared(&tile[i], first + i);
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_store(out + first, tile, sizeof(tile));  // REPORTED: copied
        cp_async_bulk_commit_group();
        if (CORRECTED) cp_async_bulk_wait_group_read<0>();  // BUG
    }
}
