// Bug: The descriptors advance by 16 for the next 16 elements of K. They count units of 16 bytes, and 16 halves are
// two of these.
// On a GPU: A wrong result: later MMAs read other rows, and parts of the next stage that have not arrived yet.
// Fix: Advance by bytes / 16: 2.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
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
            const int next = i * (CORRECT ? NEXT_K : 16);  // BUG
            sum.multiply(describe(ring.stages[s].a) + next, describe(ring.stages[s].b) + next);  // REPORTED: read
        }
        commit_wgmma();
        sum.wait<0>();
        arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
