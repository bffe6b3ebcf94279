// Mistake: the lanes give `ldmatrix` the four 8 x 8 matrices of A row by row; the fragment wants them column by
// column.
// On a GPU: a wrong product; every element lacks half of its terms and has others.
// Fix: lanes 8 to 15 address rows 8 to 15, lanes 16 to 31 the second half of the depth.
#include "ptx/matrix_move.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"
#include "warp_mma.h"

template <bool CORRECT>
__global__ void product(const __half* a, const __half* b, float* d, int m, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    __shared__ Tiles tiles;
    unsigned a_fragment[4], b_fragments[4];
    float sum[2][4] = {};
    const int lane = threadIdx.x;
    const int i = CORRECT ? lane % 16 : lane / 16 * 8 + lane % 8;  // MISTAKE
    const int l = CORRECT ? lane / 16 * 8 : lane / 8 % 2 * 8;       // MISTAKE
    for (int depth = 0; depth < k; depth += 16) {
        fill(tiles, a, b, n, k, depth);
        __syncwarp();
        load_matrices<false>(a_fragment, shared_address(&tiles.a[i][l]));
        load_b(b_fragments, tiles);
        MMA::multiply(sum[0], a_fragment, b_fragments);
        MMA::multiply(sum[1], a_fragment, b_fragments + 2);
        __syncwarp();
    }
    store(d, n, sum);
}
