// Bug: Two warpgroups share the tile of A, each has 32 of 64 columns, and both multiply the first half of B's box.
// On a GPU: A wrong result: the first 32 columns appear where the others belong, too.
// Fix: Each warpgroup starts its descriptors at its own half.
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
        for (int i = 0; i < 2; ++i) init(full[i], 1), init(empty[i], 2 * CONSUMERS);
        fence_mbarrier_init();
    }
    __syncthreads();
    const int group = threadIdx.x / WARPGROUP;
    for (int tile = 0; tile < k / BK; ++tile) {
        Wide& stage = stages[tile % 2];
        if (threadIdx.x == 2 * CONSUMERS) {
            wait(empty[tile % 2], (tile / 2 + 1) % 2);
            expect(full[tile % 2], sizeof(Wide));
            load(stage.a, a, tile * BK, blockIdx.y * BM, full[tile % 2]);
            load(stage.b, b, tile * BK, blockIdx.x * 2 * BN, full[tile % 2]);
        }
        if (group == 2) continue;
        wait(full[tile % 2], tile / 2 % 2);
        sum.fence();
        for (int i = 0; i < BK / 16; ++i) {
            const int half = CORRECT ? group : 0;  // BUG
            sum.multiply(describe(stage.a) + i * NEXT_K, describe(stage.b[half]) + i * NEXT_K);
        }
        commit_wgmma();
        sum.wait<0>();
        arrive(empty[tile % 2]);
    }
    if (group < 2) sum.store(d + group * BN, n, 2 * BN);
}
