// Bug: All warps share one epilogue patch in shared memory: one overwrites what another still reads.
// On a GPU: Fragments of neighbouring warps are swapped, differently in each run.
// Fix: One patch per warp.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    __shared__ float patches[2][16][16];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = blockIdx.y * 32 + warp * 16, column = blockIdx.x * 16;
    auto& patch = patches[CORRECT ? warp : 0];  // BUG
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
    __syncwarp();
    for (int i = 0; i < 8; ++i) {
        const int at = 32 * i + lane;
        d[(row + at / 16) * n + column + at % 16] = patch[at / 16][at % 16];
    }
}
