// Bug: The elements are bf16, and the instruction is that of f16, from the kernel that this one was copied from.
// On a GPU: A wrong result, from numbers with other exponents; often infinities.
// Fix: `.bf16.bf16`, or better a choice by the element type.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (producing()) ring.produce(a, b, tiles);
    if (!consuming()) return;
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        wait(ring.full[s], round % 2);
        sum.fence();
        for (int i = 0; i < BK / 16; ++i) {
            constexpr bool BF16 = CORRECT;  // BUG
            sum.multiply<BF16>(describe(ring.stages[s].a) + i * NEXT_K, describe(ring.stages[s].b) + i * NEXT_K);
        }
        commit_wgmma();
        sum.wait<0>();
        arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
