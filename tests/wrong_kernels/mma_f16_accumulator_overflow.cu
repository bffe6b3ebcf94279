// Bug: Accumulators are f16, whose largest value is 65504: the operands fit, the accumulated values do not.
// On a GPU: Infinities in the largest elements.
// Fix: `Mma<__half, float, 16, 8, 16>`: twice the accumulator registers.
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared_memory.cuh"
#include "warp_mma.h"

template <bool CORRECT>
struct Sum {
    using TYPE = float;
};
template <>
struct Sum<false> {
    using TYPE = __half;  // BUG
};

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    using MMA = Mma<__half, typename Sum<CORRECT>::TYPE, 16, 8, 16>;
    __shared__ Tiles tiles;
    unsigned a_fragment[4], b_fragments[4];
    typename MMA::C sum[2][MMA::C_REGISTERS] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        fill(tiles, a, b, n, k, k0);
        __syncwarp();
        load_a(a_fragment, tiles);
        load_b(b_fragments, tiles);
        MMA::mma_sync(sum[0], a_fragment, b_fragments);      // REPORTED: overflows
        MMA::mma_sync(sum[1], a_fragment, b_fragments + 2);  // REPORTED: overflows
        __syncwarp();
    }
    store(d, n, sum);
}
