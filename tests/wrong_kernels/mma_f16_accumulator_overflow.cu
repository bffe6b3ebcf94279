// Mistake: sums are kept in f16, which ends at 65504: the operands fit, their sums do not.
// On a GPU: infinities in the largest elements.
// Fix: `Mma<__half, float, 16, 8, 16>`: twice the registers for the sums.
#include "ptx/matrix_move.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"
#include "warp_mma.h"

template <bool CORRECT>
struct Sum {
    using TYPE = float;
};
template <>
struct Sum<false> {
    using TYPE = __half;  // MISTAKE
};

template <bool CORRECT>
__global__ void product(const __half* a, const __half* b, float* d, int m, int n, int k) {
    using MMA = Mma<__half, typename Sum<CORRECT>::TYPE, 16, 8, 16>;
    __shared__ Tiles tiles;
    unsigned a_fragment[4], b_fragments[4];
    typename MMA::C sum[2][MMA::C_REGISTERS] = {};
    for (int depth = 0; depth < k; depth += 16) {
        fill(tiles, a, b, n, k, depth);
        __syncwarp();
        load_a(a_fragment, tiles);
        load_b(b_fragments, tiles);
        MMA::multiply(sum[0], a_fragment, b_fragments);      // REPORTED: overflows
        MMA::multiply(sum[1], a_fragment, b_fragments + 2);  // REPORTED: overflows
        __syncwarp();
    }
    store(d, n, sum);
}
