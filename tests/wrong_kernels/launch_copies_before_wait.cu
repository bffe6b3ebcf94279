// Bug: With programmatic dependent launch, the kernel may start before the previous one has ended. The warpgroup waits
// for that end before it stores; the thread that copies A and B does not.
// On a GPU: Right alone. After a launch that writes A or B and triggers the next one early, parts of the result come
// from what A and B held before.
// Fix: Every thread executes `griddepcontrol.wait` before anything that another launch may access.
#include "hopper.h"
#include "ptx/griddepcontrol.cuh"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    griddepcontrol_launch_dependents();
    if (CORRECT || consuming()) griddepcontrol_wait();  // BUG
    if (producing()) ring.produce(a, b, tiles);              // REPORTED: copied
    if (!consuming()) return;
    ring.consume(sum, tiles);
    sum.store(d, n);
}
