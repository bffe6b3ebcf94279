// Mistake: nothing stands between the thread that initialises the barriers and those that use them.
// On a GPU: right while the first warp is ahead; otherwise it hangs, or arrivals get lost.
// Fix: `fence.mbarrier_init` behind the initialisation, then `__syncthreads()`.
#include "hopper.h"

template <bool CORRECT>
__global__ void product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init(ring.full[i], 1);
            init(ring.empty[i], CONSUMERS);  // REPORTED: initialised
        }
        fence_mbarrier_init();
    }
    if (CORRECT) __syncthreads();                // MISTAKE
    if (producing()) ring.produce(a, b, tiles);  // REPORTED: used
    if (!consuming()) return;
    ring.consume(sum, tiles);  // REPORTED: used
    sum.store(d, n);
}
