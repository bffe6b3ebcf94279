// Bug: Two consumer warpgroups raise their registers to 240 per thread, after the producer has gone down to 40. The
// CTA has 3 x 168 to share, and 2 x 240 + 40 is more.
// On a GPU: Hangs: the second warpgroup waits for registers that nobody releases.
// Fix: 232 for the consumers: 2 x 232 + 40 = 3 x 168.
#include "hopper.h"

template <bool CORRECT>
__global__ void __launch_bounds__(384, 1) gemm(const __grid_constant__ TensorMap a,
                                                  const __grid_constant__ TensorMap b, float* d, int n, int k) {
    struct alignas(1024) Tall {
        Half a[2][BM][BK], b[BN][BK];
    };
    __shared__ Tall stages[2];
    __shared__ Barrier full[2], empty[2];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; ++i) init(full[i], 1), init(empty[i], 2 * CONSUMERS);
        fence_mbarrier_init();
    }
    __syncthreads();
    const int group = warpgroup_index();
    if (group == 2) {
        setmaxnreg_dec<40>();
        for (int tile = 0; tile < k / BK && threadIdx.x == 2 * CONSUMERS; ++tile) {
            Tall& stage = stages[tile % 2];
            wait(empty[tile % 2], (tile / 2 + 1) % 2);
            expect(full[tile % 2], sizeof(Tall));
            load(stage.a, a, tile * BK, blockIdx.y * 2 * BM, full[tile % 2]);
            load(stage.b, b, tile * BK, blockIdx.x * BN, full[tile % 2]);
        }
    } else {
        setmaxnreg_inc<CORRECT ? 232 : 240>();  // BUG, REPORTED: waits
        Accumulator sum;
        for (int tile = 0; tile < k / BK; ++tile) {
            Tall& stage = stages[tile % 2];
            wait(full[tile % 2], tile / 2 % 2);
            sum.fence();
            for (int i = 0; i < BK / 16; ++i)
                sum.multiply(describe(stage.a[group]) + i * NEXT_K, describe(stage.b) + i * NEXT_K);
            commit_wgmma();
            sum.wait<0>();
            arrive(empty[tile % 2]);
        }
        sum.store(d + (blockIdx.y + group) * BM * n, n);
    }
}
