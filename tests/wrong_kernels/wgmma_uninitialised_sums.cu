// Mistake: the first product adds to registers that nothing has written: scale-d is true from the start.
// On a GPU: a wrong product, unless the registers happen to hold zeros.
// Fix: zeros to begin with, or scale-d false for the first product.
#include "hopper.h"

template <bool CORRECT>
__global__ void product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum(CORRECT);  // MISTAKE
    const int tiles = k / BK;
    ring.start();
    if (producing()) ring.produce(a, b, tiles);
    if (!consuming()) return;
    ring.consume(sum, tiles);  // REPORTED: multiplied
    sum.store(d, n);
}
