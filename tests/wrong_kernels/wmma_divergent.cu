// Bug: Lanes whose row lies outside the matrix skip the MMA, which belongs to the warp, not to a lane.
// On a GPU: Undefined; a hang or garbage, from sm_70 on.
// Fix: Every lane participates, and rows outside are staged as zeros.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    __shared__ __half a_tile[16][16];
    __shared__ float patch[16][16];
    const int column = blockIdx.x * 16, lane = threadIdx.x, row = blockIdx.y * 16 + lane / 2;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a_fragment;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b_fragment;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k0 = 0; k0 < k; k0 += 16) {
        for (int l = lane % 2 * 8; l < lane % 2 * 8 + 8; ++l)
            a_tile[lane / 2][l] = row < m ? a[row * k + k0 + l] : __half(0.0f);
        __syncwarp();
        if (CORRECT || row < m) {                                   // BUG
            wmma::load_matrix_sync(a_fragment, &a_tile[0][0], 16);  // REPORTED: not together
            wmma::load_matrix_sync(b_fragment, b + k0 * n + column, n);
            wmma::mma_sync(sum, a_fragment, b_fragment, sum);
        }
        __syncwarp();
    }
    wmma::store_matrix_sync(&patch[0][0], sum, 16, wmma::mem_row_major);
    __syncwarp();
    for (int j = lane % 2 * 8; j < lane % 2 * 8 + 8; ++j)
        if (row < m) d[row * n + column + j] = patch[lane / 2][j];
}
