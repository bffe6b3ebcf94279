// Bug: Two CTAs of a cluster multiply the same rows of A, and each multicasts half of them to both. The threads of
// each CTA synchronize after its mbarriers are initialized, those of the cluster do not.
// On a GPU: An illegal address, or a hang, if the other CTA starts later; right otherwise.
// Fix: `fence.mbarrier_init`, then a barrier of the whole cluster.
#include "hopper.h"

template <bool CORRECT>
__global__ void __cluster_dims__(2, 1, 1) gemm(const __grid_constant__ TensorMap a,
                                                  const __grid_constant__ TensorMap b, float* d, int n, int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int rank = cluster_ctarank();
    ring.start(1, 2 * CONSUMERS);
    if (CORRECT) cluster_sync();  // BUG
    for (int tile = 0; tile < k / BK; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        if (producing()) {
            wait(ring.empty[s], (round + 1) % 2);
            expect(ring.full[s], sizeof(Stage));
            const int row = rank * 32;
            load(ring.stages[s].a[row], a, tile * BK, blockIdx.y * BM + row, ring.full[s], 3);  // REPORTED: used
            load(ring.stages[s].b, b, tile * BK, blockIdx.x * BN, ring.full[s]);
        }
        if (consuming()) {
            wait(ring.full[s], round % 2);
            sum.fence();
            sum.multiply(ring.stages[s]);
            commit_wgmma();
            sum.wait<0>();
            arrive_at(ring.empty[s], 0);  // REPORTED: used
            arrive_at(ring.empty[s], 1);  // REPORTED: used
        }
    }
    if (consuming()) sum.store(d, n);
    cluster_sync();
}
