// Four warps compute a 64 x 64 tile of D = A B; tiles of A and B are staged in shared memory, padded by 8 halves.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

constexpr int BM = 64, BN = 64, BK = 16, PAD = 8;

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    __shared__ alignas(32) __half a_tile[BM][BK + PAD], b_tile[BK][BN + PAD];
    const int row = blockIdx.y * BM, column = blockIdx.x * BN, warp = threadIdx.x / 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[4];
    for (auto& fragment : sum) wmma::fill_fragment(fragment, 0.0f);

    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += blockDim.x) {
            a_tile[i / BK][i % BK] = a[(row + i / BK) * k + k0 + i % BK];
            b_tile[i / BN][i % BN] = b[(k0 + i / BN) * n + column + i % BN];
        }
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
        wmma::load_matrix_sync(left, &a_tile[16 * warp][0], BK + PAD);
        for (int j = 0; j < 4; ++j) {
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
            wmma::load_matrix_sync(right, &b_tile[0][16 * j], BN + PAD);
            wmma::mma_sync(sum[j], left, right, sum[j]);
        }
        __syncthreads();  // ANSWER
    }
    for (int j = 0; j < 4; ++j)
        wmma::store_matrix_sync(&d[(row + 16 * warp) * n + column + 16 * j], sum[j], n, wmma::mem_row_major);
}
