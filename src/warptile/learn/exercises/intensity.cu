// One warp computes a 32 x 32 tile of D = A B from global memory.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    const int row = blockIdx.y * 32, column = blockIdx.x * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
    for (auto& fragments : sum)
        for (auto& fragment : fragments) wmma::fill_fragment(fragment, 0.0f);
    for (int i = 0; i < 2; ++i)  // HOLE
        for (int j = 0; j < 2; ++j)  // HOLE
            for (int k0 = 0; k0 < k; k0 += 16) {  // HOLE
                // Each fragment of A is loaded twice, once for each j, and each one of B once for each i.  // HOLE
                wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;  // HOLE
                wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;  // HOLE
                wmma::load_matrix_sync(left, &a[(row + 16 * i) * k + k0], k);  // HOLE
                wmma::load_matrix_sync(right, &b[k0 * n + column + 16 * j], n);  // HOLE
                wmma::mma_sync(sum[i][j], left, right, sum[i][j]);  // HOLE
            }  // HOLE
    for (int k0 = 0; k0 < k; k0 += 16) {  // ANSWER
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left[2];  // ANSWER
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right[2];  // ANSWER
        for (int i = 0; i < 2; ++i) {  // ANSWER
            wmma::load_matrix_sync(left[i], &a[(row + 16 * i) * k + k0], k);  // ANSWER
            wmma::load_matrix_sync(right[i], &b[k0 * n + column + 16 * i], n);  // ANSWER
        }  // ANSWER
        for (int i = 0; i < 2; ++i)  // ANSWER
            for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], left[i], right[j], sum[i][j]);  // ANSWER
    }  // ANSWER
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
            wmma::store_matrix_sync(&d[(row + 16 * i) * n + column + 16 * j], sum[i][j], n, wmma::mem_row_major);
}
