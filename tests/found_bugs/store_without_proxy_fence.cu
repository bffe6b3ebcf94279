// Bug: Threads write a tile, and TMA stores it to global memory. A barrier separates the two, but no proxy fence: TMA
// reads through the async proxy, which need not see what the generic proxy has written.
// Provoked by: All words that a store of a warp writes lie in one bank, so that many writes are under way when the copy
// starts.
// Fix: `fence.proxy.async` by every thread that has written, before the barrier.
#include "provoke.h"

constexpr int THREADS = 64, EACH = 32, WORDS = THREADS * EACH;

template <bool CORRECTED>
__global__ void pattern(unsigned* out, int rounds) {
    __shared__ alignas(128) unsigned tile[WORDS];
    for (int round = 0; round < rounds; ++round) {
        const unsigned first = (blockIdx.x * rounds + round) * WORDS;
        for (int i = 0; i < EACH; ++i) {
            const unsigned word = threadIdx.x * EACH + i;
            weak_store_shared(&tile[word], first + word);  // REPORTED: written
        }
        if (CORRECTED) fence_proxy_async();  // BUG
        __syncthreads();
        if (threadIdx.x == 0) {
            bulk_store(out + first, tile, sizeof(tile));  // REPORTED: copied
            cp_async_bulk_commit_group();
            cp_async_bulk_wait_group_read<0>();
        }
        __syncthreads();
    }
}
