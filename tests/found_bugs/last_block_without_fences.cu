// Bug: Blocks add to sums by relaxed atomics, then count themselves by another one. The block that comes last reads the
// sums. No fence stands on either side of the counter, so that its value says nothing of the sums.
// Provoked by: All warps of a group of blocks add to the same few lines many times, and the counter lies elsewhere.
// Fix: `__threadfence()` on both sides of the counter.
#include "provoke.h"

constexpr int THREADS = 256, BLOCKS = 16, LINES = 2, REPEATS = 32;

template <bool CORRECTED>
__global__ void pattern(float* out, float* sums, unsigned* counters) {
    __shared__ bool last;
    const int group = blockIdx.x / BLOCKS, block = blockIdx.x % BLOCKS, lane = threadIdx.x % 32;
    float* lines = sums + group * LINES * 32;
    for (int i = 0; i < REPEATS; ++i) atomicAdd(&lines[block % LINES * 32 + lane], 1.0f);  // REPORTED: added
    __syncthreads();
    if (threadIdx.x == 0) {
        if (CORRECTED) __threadfence();  // BUG
        last = atomicAdd(&counters[group * 32], 1u) == BLOCKS - 1;
        if (CORRECTED) __threadfence();  // BUG
    }
    __syncthreads();
    if (last && threadIdx.x < LINES * 32) {
        const int word = threadIdx.x;
        out[group * LINES * 32 + word] = lines[word];  // REPORTED: read
    }
}
