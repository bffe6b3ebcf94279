// Mistake: the tensor maps were made without a swizzle, and the descriptors say that rows are swizzled by 128 bytes.
// On a GPU: a wrong product: chunks of 16 bytes change places along the depth. Right are only elements whose row and
// column agree modulo 8, as both operands are permuted alike there.
// Fix: the same mode in the map and in the descriptor.
#include "hopper.h"

template <bool CORRECT>
__global__ void product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (producing()) ring.produce(a, b, tiles);
    if (!consuming()) return;
    ring.consume(sum, tiles);  // MISTAKE: the maps of the wrong twin, see its case
    sum.store(d, n);
}
