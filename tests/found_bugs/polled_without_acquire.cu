// Bug: One block writes data and releases a flag; another polls the flag by `atomicCAS`, which is relaxed, and loads
// the data. Nothing acquires, so that the loads may be served from older lines of L1.
// Provoked by: The data of every round lie in the same line, which the consumer has loaded in the round before.
// Fix: `__threadfence()` behind the loop that polls.
#include "provoke.h"

template <bool CORRECTED>
__global__ void pattern(unsigned* out, unsigned* data, unsigned* flags, unsigned* taken, int rounds) {
    const int pair = blockIdx.x / 2, lane = threadIdx.x;
    data += pair * 32, flags += pair * 32, taken += pair * 32;
    for (unsigned round = 1; round <= rounds; ++round) {
        const unsigned at = (pair * rounds + round - 1) * 32 + lane;
        if (blockIdx.x % 2 == 0) {
            weak_store_global(&data[lane], at);  // REPORTED: written
            __syncwarp();
            if (lane == 0) {
                st_release_gpu(flags, round);
                while (ld_acquire_gpu(taken) != round) {
                }
            }
            __syncwarp();
        } else {
            if (lane == 0) {
                while (atomicCAS(flags, round, round) != round) {
                }
                if (CORRECTED) __threadfence();  // BUG
            }
            __syncwarp();
            out[at] = weak_load_global(&data[lane]);  // REPORTED: read
            __syncwarp();
            if (lane == 0) st_release_gpu(taken, round);
        }
    }
}
