// Bug: Accumulators are f16, whose largest value is 65504, although operands are as large as activations can be.
// On a GPU: Single elements become infinite, and NaN a layer later.
// Fix: Use f32 accumulators.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

template <bool CORRECT>
struct Sum {
    using TYPE = float;
};
template <>
struct Sum<false> {
    using TYPE = __half;  // BUG
};

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, typename Sum<CORRECT>::TYPE* d, int m, int n, int k) {
    using SUM = typename Sum<CORRECT>::TYPE;
    const int row = blockIdx.y * 16, column = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a_fragment;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b_fragment;
    wmma::fragment<wmma::accumulator, 16, 16, 16, SUM> sum;
    wmma::fill_fragment(sum, SUM(0.0f));
    for (int k0 = 0; k0 < k; k0 += 16) {
        wmma::load_matrix_sync(a_fragment, a + row * k + k0, k);
        wmma::load_matrix_sync(b_fragment, b + k0 * n + column, n);
        wmma::mma_sync(sum, a_fragment, b_fragment, sum);  // REPORTED: overflows
    }
    wmma::store_matrix_sync(d + row * n + column, sum, n, wmma::mem_row_major);
}
