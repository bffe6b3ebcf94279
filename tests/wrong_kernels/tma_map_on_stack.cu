// Bug: The copies use a tensor map in a local variable, as happens to a parameter without `__grid_constant__` whose
// address is taken. TMA does not read local memory.
// On a GPU: An illegal instruction or an illegal address.
// Fix: The map as a `const __grid_constant__` parameter, or in global memory after a fence.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (producing()) {
        TensorMap copy = a;
        asm volatile("" ::"l"(&copy) : "memory");
        ring.produce(CORRECT ? a : copy, b, tiles);  // BUG, REPORTED: copied
    }
    if (!consuming()) return;
    ring.consume(sum, tiles);
    sum.store(d, n);
}
