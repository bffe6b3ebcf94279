// Bug: B is column-major, [N, K], and is read as row-major.
// On a GPU: Another matrix in place of B, with the same elements; nothing faults.
// Fix: A `wmma::col_major` fragment, and K as the leading dimension.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    const int row = blockIdx.y * 16, column = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a_fragment;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b_by_rows;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b_by_columns;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k0 = 0; k0 < k; k0 += 16) {
        wmma::load_matrix_sync(a_fragment, a + row * k + k0, k);
        if (CORRECT) {
            wmma::load_matrix_sync(b_by_columns, b + column * k + k0, k);
            wmma::mma_sync(sum, a_fragment, b_by_columns, sum);
        } else {
            wmma::load_matrix_sync(b_by_rows, b + k0 * n + column, n);  // BUG
            wmma::mma_sync(sum, a_fragment, b_by_rows, sum);
        }
    }
    wmma::store_matrix_sync(d + row * n + column, sum, n, wmma::mem_row_major);
}
