// Bug: The tensor maps have no swizzle, and the descriptors say that rows have the 128-byte swizzle.
// On a GPU: A wrong result: 16-byte chunks are permuted along K. Only elements whose row and column agree modulo 8 are
// right, as both operands are permuted alike there.
// Fix: The same swizzle mode in map and descriptor.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (producing()) ring.produce(a, b, tiles);
    if (!consuming()) return;
    ring.consume(sum, tiles);  // BUG: the maps of the wrong twin, see its case
    sum.store(d, n);
}
