// Bug: Two CTAs of a cluster multiply the same rows of A, and each multicasts half of them to both. Each expects the
// bytes that it copies itself, and not those that the other sends.
// On a GPU: A wrong result, or it hangs: phases complete too early, and later ones never.
// Fix: Expect what arrives in the CTA's own shared memory: both halves of A, and B.
#include "hopper.h"

template <bool CORRECT>
__global__ void __cluster_dims__(2, 1, 1) gemm(const __grid_constant__ TensorMap a,
                                                  const __grid_constant__ TensorMap b, float* d, int n, int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int rank = cluster_ctarank();
    ring.start(1, 2 * CONSUMERS);
    cluster_sync();
    for (int tile = 0; tile < k / BK; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        if (producing()) {
            wait(ring.empty[s], (round + 1) % 2);
            expect(ring.full[s], sizeof(Stage) - (CORRECT ? 0 : sizeof(Stage::a) / 2));  // BUG
            load(ring.stages[s].a[rank * 32], a, tile * BK, blockIdx.y * BM + rank * 32, ring.full[s], 3);
            load(ring.stages[s].b, b, tile * BK, blockIdx.x * BN, ring.full[s]);
        }
        if (consuming()) {
            wait(ring.full[s], round % 2);  // REPORTED: affected
            sum.fence();
            sum.multiply(ring.stages[s]);  // REPORTED: affected
            commit_wgmma();
            sum.wait<0>();
            arrive_at(ring.empty[s], 0);
            arrive_at(ring.empty[s], 1);
        }
    }
    if (consuming()) sum.store(d, n);
    cluster_sync();
}
