// Bug: Threads prefetch a tile by `cp.async` that they do not need, and use its shared memory for something else.
// Nobody waits for the copies.
// Provoked by: The copies come from global memory that nothing has read before, and the threads store at once. They
// read late what they have stored.
// Fix: `cp.async.wait_group 0` before the stores.
#include "provoke.h"

constexpr int THREADS = 128;

template <bool CORRECTED>
__global__ void pattern(unsigned* out, const unsigned* in, int rounds, int late) {
    __shared__ alignas(16) unsigned tile[THREADS][4];
    for (int round = 0; round < rounds; ++round) {
        const unsigned first = (blockIdx.x * rounds + round) * THREADS;
        cp_async<16>(tile[threadIdx.x], in + (first + threadIdx.x) * 4);  // REPORTED: copied
        cp_async_commit_group();
        if (CORRECTED) cp_async_wait_group<0>();                        // BUG
        weak_store_shared(&tile[threadIdx.x][0], first + threadIdx.x);  // REPORTED: written
        __syncthreads();
        delay(late);
        const unsigned other = threadIdx.x ^ 1;
        out[first + other] = weak_load_shared(&tile[other][0]);
        __syncthreads();
    }
}
