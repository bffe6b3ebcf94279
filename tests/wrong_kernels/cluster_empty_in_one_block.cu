// Mistake: two blocks of a cluster multiply the same rows of A. Each copies half of them into the shared memory of
// both. Consumers tell only their own block that a stage is empty, and the other one copies into it nevertheless.
// On a GPU: wrong sums when the blocks do not keep step.
// Fix: consumers arrive at the empty barriers of all blocks that copy into their stages.
#include "hopper.h"

template <bool CORRECT>
__global__ void __cluster_dims__(2, 1, 1) product(const __grid_constant__ TensorMap a,
                                                  const __grid_constant__ TensorMap b, float* d, int n, int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int rank = cluster_rank();
    ring.start(1, CORRECT ? 2 * CONSUMERS : CONSUMERS);
    cluster_barrier<false>();
    for (int tile = 0; tile < k / BK; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        if (producing()) {
            wait(ring.empty[s], (round + 1) % 2);
            expect(ring.full[s], sizeof(Stage));
            const int row = rank * 32;
            load(ring.stages[s].a[row], a, tile * BK, blockIdx.y * BM + row, ring.full[s], 3);  // REPORTED: copied
            load(ring.stages[s].b, b, tile * BK, blockIdx.x * BN, ring.full[s]);
        }
        if (consuming()) {
            wait(ring.full[s], round % 2);
            sum.fence();
            sum.multiply(ring.stages[s]);
            commit_products();
            sum.wait<0>();
            arrive_at(ring.empty[s], rank);
            if (CORRECT) arrive_at(ring.empty[s], 1 - rank);  // MISTAKE
        }
    }
    if (consuming()) sum.store(d, n);
    cluster_barrier<false>();
}
