// Bug: Nothing orders the thread that initializes the mbarriers before those that use them.
// On a GPU: Right while the first warp is ahead; otherwise it hangs, or arrivals are lost.
// Fix: `fence.mbarrier_init` after the initialization, then `__syncthreads()`.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init(ring.full[i], 1);           // REPORTED: initialised
            init(ring.empty[i], CONSUMERS);  // REPORTED: initialised
        }
        fence_mbarrier_init();
    }
    if (CORRECT) __syncthreads();                // BUG
    if (producing()) ring.produce(a, b, tiles);  // REPORTED: used
    if (!consuming()) return;
    ring.consume(sum, tiles);  // REPORTED: used
    sum.store(d, n);
}
