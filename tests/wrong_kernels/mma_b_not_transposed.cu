// Bug: B is row-major in shared memory, [K][N], and is loaded by `ldmatrix` without `.trans`: each 8x8 matrix of it
// arrives transposed.
// On a GPU: A wrong result, nothing else; right where B is a multiple of the identity.
// Fix: `ldmatrix...trans`, or B stored column-major.
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
    for (int k0 = 0; k0 < k; k0 += 16) {
        fill(tiles, a, b, n, k, k0);
        __syncwarp();
        load_a(a_fragment, tiles);
        const unsigned b_rows = shared_address(&tiles.b[threadIdx.x % 16][threadIdx.x / 16 * 8]);
        ldmatrix_x4<CORRECT>(b_fragments, b_rows);  // BUG
        MMA::mma_sync(sum[0], a_fragment, b_fragments);
        MMA::mma_sync(sum[1], a_fragment, b_fragments + 2);
        __syncwarp();
    }
    store(d, n, sum);
}
