// One warp computes a 16 x 16 tile of D = A B with WMMA, from global memory.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    const int row = blockIdx.y * 16, column = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    // Begin.  // HOLE
    wmma::fill_fragment(sum, 0.0f);  // ANSWER
    for (int k0 = 0; k0 < k; k0 += 16) {
        // Load, then multiply and add.  // HOLE
        wmma::load_matrix_sync(left, &a[row * k + k0], k);  // ANSWER
        wmma::load_matrix_sync(right, &b[k0 * n + column], n);  // ANSWER
        wmma::mma_sync(sum, left, right, sum);  // ANSWER
    }
    // Store.  // HOLE
    wmma::store_matrix_sync(&d[row * n + column], sum, n, wmma::mem_row_major);  // ANSWER
}
