// Bug: B is row-major, [K, N], and so is its tile in shared memory: MN-major. The instruction is told that it is
// K-major.
// On a GPU: A wrong result; the last rows are read from the next stage.
// Fix: 1 for trans-b, which f16 and bf16 support.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* d, int n,
                        int k) {
    __shared__ Ring ring;
    Accumulator sum;
    const int tiles = k / BK;
    ring.start();
    if (producing()) {
        for (int tile = 0; tile < tiles; ++tile) {
            const int s = tile % STAGES, round = tile / STAGES;
            wait(ring.empty[s], (round + 1) % 2);
            expect(ring.full[s], sizeof(Stage));
            load(ring.stages[s].a, a, tile * BK, blockIdx.y * BM, ring.full[s]);  // REPORTED: copied
            load(ring.stages[s].b, b, blockIdx.x * BN, tile * BK, ring.full[s]);  // REPORTED: copied
        }
    }
    if (!consuming()) return;
    constexpr int ROW = BN * sizeof(Half);  // 64 bytes, under the swizzle of so many
    for (int tile = 0; tile < tiles; ++tile) {
        const int s = tile % STAGES, round = tile / STAGES;
        wait(ring.full[s], round % 2);
        sum.fence();
        for (int i = 0; i < BK / 16; ++i) {
            const Descriptor rows = describe(ring.stages[s].b, 16, 8 * ROW, SWIZZLE_64B) + i * ROW;
            constexpr bool TRANSPOSED_B = CORRECT;  // BUG
            sum.multiply<false, TRANSPOSED_B>(describe(ring.stages[s].a) + i * NEXT_K, rows);  // REPORTED: read
        }
        commit_wgmma();
        sum.wait<0>();
        arrive(ring.empty[s]);
    }
    sum.store(d, n);
}
