// Mistake: B is stored by columns, [N, K], and read as if it were stored by rows.
// On a GPU: another matrix in the place of B, of the same numbers; nothing faults.
// Fix: a `wmma::col_major` fragment, and K as the leading dimension.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

template <bool CORRECT>
__global__ void product(const __half* a, const __half* b, float* d, int m, int n, int k) {
    const int row = blockIdx.y * 16, column = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a_fragment;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b_by_rows;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b_by_columns;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int depth = 0; depth < k; depth += 16) {
        wmma::load_matrix_sync(a_fragment, a + row * k + depth, k);
        if (CORRECT) {
            wmma::load_matrix_sync(b_by_columns, b + column * k + depth, k);
            wmma::mma_sync(sum, a_fragment, b_by_columns, sum);
        } else {
            wmma::load_matrix_sync(b_by_rows, b + depth * n + column, n);  // MISTAKE
            wmma::mma_sync(sum, a_fragment, b_by_rows, sum);
        }
    }
    wmma::store_matrix_sync(d + row * n + column, sum, n, wmma::mem_row_major);
}
