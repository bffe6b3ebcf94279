// Mistake: the launch may start before the one before it has ended. The warpgroup waits for that end before it stores;
// the thread that copies A and B does not.
// On a GPU: right alone. Behind a launch that writes A or B and lets the next one start, parts of the product are of
// what A and B held before.
// Fix: every thread executes `griddepcontrol.wait`, in front of everything that another launch may have to do with.
#include "hopper.h"
#include "ptx/dependent_launch.cuh"

template <bool CORRECT>
__global__ void product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    allow_next_launch();
    if (CORRECT || consuming()) wait_for_previous_launch();  // MISTAKE
    if (producing()) ring.produce(a, b, tiles);              // REPORTED: copied
    if (!consuming()) return;
    ring.consume(sum, tiles);
    sum.store(d, n);
}
