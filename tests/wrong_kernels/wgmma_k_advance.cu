// Mistake: the descriptors grow by 16 for the next 16 of depth. They count units of 16 bytes, and 16 halves have two of
// these.
// On a GPU: a wrong product: later steps read other rows, and of the next stage what is not there yet.
// Fix: advance by bytes / 16: 2.
#include "hopper.h"

template <bool CORRECT>
__global__ void product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (producing()) ring.produce(a, b, tiles);  // REPORTED: copied
    if (!consuming()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        wait(ring.full[s], round % 2);
        sum.fence();
        for (int i = 0; i < BK / 16; ++i) {
            const int next = i * (CORRECT ? NEXT_K : 16);  // MISTAKE
            sum.multiply(describe(ring.stages[s].a) + next, describe(ring.stages[s].b) + next);  // REPORTED: read
        }
        commit_products();
        sum.wait<0>();
        arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
