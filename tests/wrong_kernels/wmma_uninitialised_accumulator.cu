// Bug: The accumulator fragment is never set to zero.
// On a GPU: Whatever the registers held; that may be zero, so the first test passes.
// Fix: `wmma::fill_fragment` before the loop.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    const int row = blockIdx.y * 16, column = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a_fragment;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b_fragment;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    if (CORRECT) wmma::fill_fragment(sum, 0.0f);  // BUG
    for (int k0 = 0; k0 < k; k0 += 16) {
        wmma::load_matrix_sync(a_fragment, a + row * k + k0, k);
        wmma::load_matrix_sync(b_fragment, b + k0 * n + column, n);
        wmma::mma_sync(sum, a_fragment, b_fragment, sum);  // REPORTED: used
    }
    wmma::store_matrix_sync(d + row * n + column, sum, n, wmma::mem_row_major);
}
