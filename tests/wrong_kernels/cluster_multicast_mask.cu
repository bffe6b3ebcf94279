// Mistake: two blocks of a cluster multiply the same rows of A. Each copies half of them into the shared memory of
// both. The mask of each copy names only the block that starts it.
// On a GPU: hangs: each block waits for bytes that the other keeps to itself.
// Fix: a bit for each block that shall get the box: 3.
#include "hopper.h"

template <bool CORRECT>
__global__ void __cluster_dims__(2, 1, 1) product(const __grid_constant__ TensorMap a,
                                                  const __grid_constant__ TensorMap b, float* d, int n, int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int rank = cluster_rank();
    ring.start(1, 2 * CONSUMERS);
    cluster_barrier<false>();
    for (int tile = 0; tile < k / BK; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        if (producing()) {
            wait(ring.empty[s], (round + 1) % 2);
            expect(ring.full[s], sizeof(Stage));
            const int blocks = CORRECT ? 3 : 1 << rank;  // MISTAKE
            load(ring.stages[s].a[rank * 32], a, tile * BK, blockIdx.y * BM + rank * 32, ring.full[s], blocks);
            load(ring.stages[s].b, b, tile * BK, blockIdx.x * BN, ring.full[s]);
        }
        if (consuming()) {
            wait(ring.full[s], round % 2);  // REPORTED: waits
            sum.fence();
            sum.multiply(ring.stages[s]);
            commit_products();
            sum.wait<0>();
            arrive_at(ring.empty[s], 0);
            arrive_at(ring.empty[s], 1);
        }
    }
    if (consuming()) sum.store(d, n);
    cluster_barrier<false>();
}
