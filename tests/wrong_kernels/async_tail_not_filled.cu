// Bug: When K is not a multiple of the k-block, copies outside the matrix are skipped, and the stage keeps what it
// held: nothing, or an earlier tile.
// On a GPU: Right where shared memory held zeros; otherwise garbage, NaN included.
// Fix: `cp.async` with a source size of 0 writes zeros.
#include "ptx/cp_async.cuh"
#include "ring.h"

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    __shared__ Stage stages[2];
    WarpTile warp_tile;
    const int i = threadIdx.x / 2, j = threadIdx.x % 2 * 8;
    for (int tile = 0; tile * BK < k; ++tile) {
        Stage& stage = stages[tile % 2];
        const bool a_inside = tile * BK + j < k, b_inside = tile * BK + i < k;
        const __half *a_from = a + (blockIdx.y * BM + i) * k + tile * BK + j;
        const __half *b_from = b + (tile * BK + i) * n + blockIdx.x * BN + j;
        if (CORRECT || a_inside)  // BUG
            cp_async_zero_fill<16>(&stage.a[i][j], a_inside ? a_from : a, a_inside ? 16 : 0);
        if (i < BK && (CORRECT || b_inside))  // BUG
            cp_async_zero_fill<16>(&stage.b[i][j], b_inside ? b_from : b, b_inside ? 16 : 0);
        cp_async_commit_group();
        cp_async_wait_group<0>();
        __syncthreads();
        warp_tile.load(stage);  // REPORTED: read
        warp_tile.multiply();
    }
    warp_tile.store(d, n);
}
