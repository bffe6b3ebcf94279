// Bug: A published 128x128 tiling gives each of eight warps 2x2 fragments: 32 of the 64 fragments, so half of the
// result is never written.
// On a GPU: Half of the columns show old memory; right where it held the right result of an earlier run.
// Fix: 2x4 fragments per warp.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    constexpr int BM = 128, BN = 128, BK = 32, PAD = 8, FRAGMENTS_M = 2;
    constexpr int FRAGMENTS_N = CORRECT ? 4 : 2;  // BUG
    __shared__ __half a_tile[BM][BK + PAD], b_tile[BK][BN + PAD];
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / 2 * FRAGMENTS_M * 16, warp_column = warp % 2 * FRAGMENTS_N * 16;
    const int row = blockIdx.y * BM, column = blockIdx.x * BN;

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[FRAGMENTS_M][FRAGMENTS_N];
    for (auto& fragments : sum)
        for (auto& fragment : fragments) wmma::fill_fragment(fragment, 0.0f);

    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += blockDim.x)
            a_tile[i / BK][i % BK] = a[(row + i / BK) * k + k0 + i % BK];
        for (int i = threadIdx.x; i < BK * BN; i += blockDim.x)
            b_tile[i / BN][i % BN] = b[(k0 + i / BN) * n + column + i % BN];
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
