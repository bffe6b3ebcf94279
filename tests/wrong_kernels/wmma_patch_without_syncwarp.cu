// Bug: A warp stores its fragment to a patch of shared memory and reads it row by row, without a barrier between.
// `wmma::store_matrix_sync` converges the lanes; it does not order their memory accesses.
// On a GPU: Right as long as the compiler keeps the order and the hardware keeps the lanes converged, which nothing
// guarantees.
// Fix: `__syncwarp()` between the two.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    __shared__ float patch[16][16];
    const int row = blockIdx.y * 16, column = blockIdx.x * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a_fragment;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b_fragment;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k0 = 0; k0 < k; k0 += 16) {
        wmma::load_matrix_sync(a_fragment, a + row * k + k0, k);
        wmma::load_matrix_sync(b_fragment, b + k0 * n + column, n);
        wmma::mma_sync(sum, a_fragment, b_fragment, sum);
    }
    wmma::store_matrix_sync(&patch[0][0], sum, 16, wmma::mem_row_major);  // REPORTED: written
    if (CORRECT) __syncwarp();                                            // BUG
    for (int i = 0; i < 8; ++i) {
        const int at = 32 * i + threadIdx.x;
        d[(row + at / 16) * n + column + at % 16] = patch[at / 16][at % 16];  // REPORTED: read
    }
}
