// Bug: All threads read the maximum of a row from shared memory. After a reduction by shuffles, which synchronizes the
// lanes of one warp alone, the first lane of each warp writes a sum to the same array.
// Provoked by: The last warp reads the maximum late.
// Fix: `__syncthreads()` behind the read.
#include "provoke.h"

constexpr int THREADS = 128, WARPS = THREADS / 32;

template <bool CORRECTED>
__global__ void pattern(unsigned* out, const unsigned* in, int rounds, int late) {
    __shared__ unsigned reduced[WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int round = 0; round < rounds; ++round) {
        const int row = (blockIdx.x * rounds + round) * THREADS;
        const unsigned value = in[row + threadIdx.x];
        unsigned most = value;
        for (int step = 16; step; step /= 2) most = max(most, __shfl_xor_sync(0xFFFFFFFF, most, step));
        if (lane == 0) weak_store_shared(&reduced[warp], most);
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int i = 1; i < WARPS; ++i) most = max(most, weak_load_shared(&reduced[i]));
            weak_store_shared(&reduced[0], most);
        }
        __syncthreads();

        if (warp == WARPS - 1) delay(late);
        const unsigned below = weak_load_shared(&reduced[0]) - value;  // REPORTED: read
        if (CORRECTED) __syncthreads();                                // BUG
        unsigned sum = below;
        for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, step);
        if (lane == 0) weak_store_shared(&reduced[warp], sum);  // REPORTED: written
        __syncthreads();
        out[row + threadIdx.x] = below;
    }
}
