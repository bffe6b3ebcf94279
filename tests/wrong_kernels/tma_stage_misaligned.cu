// Bug: A stage also holds the number of its tile, which makes it 16 bytes longer: the next one does not start at a
// multiple of 128 bytes, as a box must.
// On a GPU: A misaligned address or an illegal instruction.
// Fix: Stages at multiples of 1024 bytes, the period of the 128-byte swizzle.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    struct alignas(CORRECT ? 1024 : 16) Numbered {  // BUG
        Half a[BM][BK], b[BN][BK];
        int tile;
    };
    __shared__ alignas(1024) Numbered stages[2];
    __shared__ Barrier full[2];
    Accumulator sum;
    if (threadIdx.x == 0) {
        init(full[0], 1), init(full[1], 1);
        fence_mbarrier_init();
    }
    __syncthreads();
    for (int tile = 0; tile < k / BK; ++tile) {
        Numbered& stage = stages[tile % 2];
        if (producing()) {
            stage.tile = tile;
            expect(full[tile % 2], sizeof(stage.a) + sizeof(stage.b));
            load(stage.a, a, tile * BK, blockIdx.y * BM, full[tile % 2]);  // REPORTED: copied
            load(stage.b, b, tile * BK, blockIdx.x * BN, full[tile % 2]);
        }
        if (consuming()) {
            wait(full[tile % 2], tile / 2 % 2);
            sum.fence();
            for (int i = 0; i < BK / 16; ++i)
                sum.multiply(describe(stage.a) + i * NEXT_K, describe(stage.b) + i * NEXT_K);
            commit_wgmma();
            sum.wait<0>();
        }
        __syncthreads();
    }
    if (consuming()) sum.store(d, n);
}
