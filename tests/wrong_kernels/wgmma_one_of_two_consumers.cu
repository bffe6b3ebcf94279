// Bug: Two warpgroups read each stage, but its empty barrier counts the arrivals of one. It is refilled while the
// slower one still reads it.
// On a GPU: Wrong results when the two drift apart; each tile completes two phases of the mbarrier, and it may hang.
// Fix: Count the arrivals of both.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    struct alignas(1024) Wide {
        Half a[BM][BK], b[2][BN][BK];
    };
    __shared__ Wide stages[2];
    __shared__ Barrier full[2], empty[2];
    Accumulator sum;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; ++i) init(full[i], 1), init(empty[i], CORRECT ? 2 * CONSUMERS : CONSUMERS);  // BUG
        fence_mbarrier_init();
    }
    __syncthreads();
    const int group = threadIdx.x / WARPGROUP;
    for (int tile = 0; tile < k / BK; ++tile) {
        Wide& stage = stages[tile % 2];
        if (threadIdx.x == 2 * CONSUMERS) {
            wait(empty[tile % 2], (tile / 2 + 1) % 2);  // REPORTED: filled again
            expect(full[tile % 2], sizeof(Wide));
            load(stage.a, a, tile * BK, blockIdx.y * BM, full[tile % 2]);  // REPORTED: filled again
            load(stage.b, b, tile * BK, blockIdx.x * 2 * BN, full[tile % 2]);  // REPORTED: filled again
        }
        if (group == 2) continue;
        wait(full[tile % 2], tile / 2 % 2);
        sum.fence();
        for (int i = 0; i < BK / 16; ++i)
            sum.multiply(describe(stage.a) + i * NEXT_K, describe(stage.b[group]) + i * NEXT_K);  // REPORTED: read
        commit_wgmma();
        sum.wait<0>();
        arrive(empty[tile % 2]);
    }
    if (group < 2) sum.store(d + group * BN, n, 2 * BN);
}
