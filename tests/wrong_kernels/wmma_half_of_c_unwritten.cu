// Mistake: a published tiling of 128 x 128 gives eight warps 2 x 2 fragments each: 32 of the 64 that there are, so
// that half of the result is never written.
// On a GPU: old memory shows through in half of the columns; right where it held the right result of an earlier run.
// Fix: 2 x 4 fragments a warp.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

template <bool CORRECT>
__global__ void product(const __half* a, const __half* b, float* d, int m, int n, int k) {
    constexpr int BM = 128, BN = 128, BK = 32, PAD = 8, FRAGMENTS_M = 2;
    constexpr int FRAGMENTS_N = CORRECT ? 4 : 2;  // MISTAKE
    __shared__ __half a_tile[BM][BK + PAD], b_tile[BK][BN + PAD];
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / 2 * FRAGMENTS_M * 16, warp_column = warp % 2 * FRAGMENTS_N * 16;
    const int row = blockIdx.y * BM, column = blockIdx.x * BN;

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[FRAGMENTS_M][FRAGMENTS_N];
    for (auto& fragments : sum)
        for (auto& fragment : fragments) wmma::fill_fragment(fragment, 0.0f);

    for (int depth = 0; depth < k; depth += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += blockDim.x)
            a_tile[i / BK][i % BK] = a[(row + i / BK) * k + depth + i % BK];
        for (int i = threadIdx.x; i < BK * BN; i += blockDim.x)
            b_tile[i / BN][i % BN] = b[(depth + i / BN) * n + column + i % BN];
        __syncthreads();
        for (int step = 0; step < BK; step += 16)
            for (int i = 0; i < FRAGMENTS_M; ++i) {
                wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a_fragment;
                wmma::load_matrix_sync(a_fragment, &a_tile[warp_row + 16 * i][step], BK + PAD);
                for (int j = 0; j < FRAGMENTS_N; ++j) {
                    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b_fragment;
                    wmma::load_matrix_sync(b_fragment, &b_tile[step][warp_column + 16 * j], BN + PAD);
                    wmma::mma_sync(sum[i][j], a_fragment, b_fragment, sum[i][j]);
                }
            }
        __syncthreads();
    }
    for (int i = 0; i < FRAGMENTS_M; ++i)
        for (int j = 0; j < FRAGMENTS_N; ++j)
            wmma::store_matrix_sync(d + (row + warp_row + 16 * i) * n + column + warp_column + 16 * j, sum[i][j], n,
                                    wmma::mem_row_major);
}
