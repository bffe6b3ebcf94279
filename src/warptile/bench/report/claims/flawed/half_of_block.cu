// Eight warps compute a 128 x 128 tile of D = A B, each warp FRAGMENTS_M x FRAGMENTS_N fragments of 16 x 16.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

constexpr int BM = 128, BN = 128, BK = 32, PAD = 8;
constexpr int FRAGMENTS_M = 2, FRAGMENTS_N = 2;  // AS PRINTED
constexpr int FRAGMENTS_M = 4, FRAGMENTS_N = 2;  // MENDED
constexpr int WARPS_N = BN / (16 * FRAGMENTS_N);

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    __shared__ __half a_tile[BK][BM + PAD], b_tile[BK][BN + PAD];
    const int row = blockIdx.y * BM, column = blockIdx.x * BN, warp = threadIdx.x / 32;
    const int warp_row = warp / WARPS_N * 16 * FRAGMENTS_M, warp_column = warp % WARPS_N * 16 * FRAGMENTS_N;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[FRAGMENTS_M][FRAGMENTS_N];
    for (auto& fragments : sum)
        for (auto& fragment : fragments) wmma::fill_fragment(fragment, 0.0f);

    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int i = threadIdx.x; i < BK * BM; i += blockDim.x) {
            a_tile[i / BM][i % BM] = a[(row + i % BM) * k + k0 + i / BM];
            b_tile[i / BN][i % BN] = b[(k0 + i / BN) * n + column + i % BN];
        }
        __syncthreads();
        for (int step = 0; step < BK; step += 16)
            for (int i = 0; i < FRAGMENTS_M; ++i)
                for (int j = 0; j < FRAGMENTS_N; ++j) {
                    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::col_major> left;
                    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
                    wmma::load_matrix_sync(left, &a_tile[step][warp_row + 16 * i], BM + PAD);
                    wmma::load_matrix_sync(right, &b_tile[step][warp_column + 16 * j], BN + PAD);
                    wmma::mma_sync(sum[i][j], left, right, sum[i][j]);
                }
        __syncthreads();
    }
    float* corner = d + (row + warp_row) * n + column + warp_column;
    for (int i = 0; i < FRAGMENTS_M; ++i)
        for (int j = 0; j < FRAGMENTS_N; ++j)
            wmma::store_matrix_sync(corner + 16 * i * n + 16 * j, sum[i][j], n, wmma::mem_row_major);
}
