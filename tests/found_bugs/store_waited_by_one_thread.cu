// Bug: Every thread waits for the bulk groups that it has committed, but only thread 0 has any. No barrier follows, so
// that the other threads overwrite the tile while TMA still reads it.
// Provoked by: The tile is large, and is written again at once.
// Fix: `__syncthreads()` behind the wait.
#include "provoke.h"

constexpr int THREADS = 256, WORDS = 8192;

template <bool CORRECTED>
__global__ void pattern(unsigned* out, int rounds) {
    __shared__ alignas(128) unsigned tile[WORDS];
    for (int round = 0; round < rounds; ++round) {
        const unsigned first = (blockIdx.x * rounds + round) * WORDS;
        for (int i = threadIdx.x; i < WORDS; i += THREADS) weak_store_shared(&tile[i], first + i);  // REPORTED: written
        fence_proxy_async();
        __syncthreads();
        if (threadIdx.x == 0) {
            bulk_store(out + first, tile, sizeof(tile));  // REPORTED: copied
            cp_async_bulk_commit_group();
        }
        cp_async_bulk_wait_group_read<0>();
        if (CORRECTED) __syncthreads();  // BUG
    }
}
