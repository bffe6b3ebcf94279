// Bug: Two CTAs of a cluster multiply the same rows of A, and each multicasts half of them to both. Consumers release
// a stage to their own CTA only, and the other one copies into it nevertheless.
// On a GPU: Wrong results when the CTAs drift apart.
// Fix: Consumers arrive at the empty barriers of all CTAs that copy into their stages.
#include "hopper.h"

template <bool CORRECT>
__global__ void __cluster_dims__(2, 1, 1) gemm(const __grid_constant__ TensorMap a,
                                                  const __grid_constant__ TensorMap b, float* d, int n, int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int rank = cluster_ctarank();
    ring.start(1, CORRECT ? 2 * CONSUMERS : CONSUMERS);
    cluster_sync();
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
            commit_wgmma();
            sum.wait<0>();
            arrive_at(ring.empty[s], rank);
            if (CORRECT) arrive_at(ring.empty[s], 1 - rank);  // BUG
        }
    }
    if (consuming()) sum.store(d, n);
    cluster_sync();
}
