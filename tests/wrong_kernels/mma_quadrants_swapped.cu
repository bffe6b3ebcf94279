// Bug: The lanes give `ldmatrix` the four 8x8 matrices of A in row order; the fragment needs column order.
// On a GPU: A wrong result; every element lacks half of its terms and has others.
// Fix: Lanes 8 to 15 address rows 8 to 15, lanes 16 to 31 the second half of K.
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared_memory.cuh"
#include "warp_mma.h"

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    __shared__ Tiles tiles;
    unsigned a_fragment[4], b_fragments[4];
    float sum[2][4] = {};
    const int lane = threadIdx.x;
    const int i = CORRECT ? lane % 16 : lane / 16 * 8 + lane % 8;  // BUG
    const int l = CORRECT ? lane / 16 * 8 : lane / 8 % 2 * 8;       // BUG
    for (int k0 = 0; k0 < k; k0 += 16) {
        fill(tiles, a, b, n, k, k0);
        __syncwarp();
        ldmatrix_x4<false>(a_fragment, shared_address(&tiles.a[i][l]));
        load_b(b_fragments, tiles);
        MMA::mma_sync(sum[0], a_fragment, b_fragments);
        MMA::mma_sync(sum[1], a_fragment, b_fragments + 2);
        __syncwarp();
    }
    store(d, n, sum);
}
