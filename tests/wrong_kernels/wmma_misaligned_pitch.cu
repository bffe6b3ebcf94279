// Bug: Shared-memory rows are padded by 4 halves to spread them over the banks, so every other row starts in the
// middle of 16 bytes.
// On a GPU: Undefined; a misaligned address where the load becomes an `ldmatrix`.
// Fix: Pad by 8 halves, so that rows of a fragment start at multiples of 16 bytes.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    constexpr int PAD = CORRECT ? 8 : 4;  // BUG
    __shared__ __half a_tile[16][16 + PAD];
    const int row = blockIdx.y * 16, column = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a_fragment;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b_fragment;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k0 = 0; k0 < k; k0 += 16) {
        for (int i = threadIdx.x; i < 256; i += 32) a_tile[i / 16][i % 16] = a[(row + i / 16) * k + k0 + i % 16];
        __syncwarp();
        wmma::load_matrix_sync(a_fragment, &a_tile[0][0], 16 + PAD);  // REPORTED: read
        wmma::load_matrix_sync(b_fragment, b + k0 * n + column, n);
        wmma::mma_sync(sum, a_fragment, b_fragment, sum);
        __syncwarp();
    }
    wmma::store_matrix_sync(d + row * n + column, sum, n, wmma::mem_row_major);
}
