// Mistake: B lies in shared memory by rows, [K][N], and is loaded by `ldmatrix` without `.trans`: each 8 x 8 matrix
// of it arrives transposed.
// On a GPU: a wrong product, nothing else; right where B is a multiple of the identity.
// Fix: `ldmatrix...trans`, or B stored by columns.
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
    for (int depth = 0; depth < k; depth += 16) {
        fill(tiles, a, b, n, k, depth);
        __syncwarp();
        load_a(a_fragment, tiles);
        const unsigned b_rows = shared_address(&tiles.b[threadIdx.x % 16][threadIdx.x / 16 * 8]);
        load_matrices<CORRECT>(b_fragments, b_rows);  // MISTAKE
        MMA::multiply(sum[0], a_fragment, b_fragments);
        MMA::multiply(sum[1], a_fragment, b_fragments + 2);
        __syncwarp();
    }
    store(d, n, sum);
}
