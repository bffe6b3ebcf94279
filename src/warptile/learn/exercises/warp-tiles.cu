// Eight warps compute a 128 x 128 tile of D = A B; each warp owns 64 x 32 of it: 4 x 2 fragments of 16 x 16.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

constexpr int BM = 128, BN = 128, WM = 64, WN = 32;

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    const int row = blockIdx.y * BM, column = blockIdx.x * BN, warp = threadIdx.x / 32;
    // Where does this warp's part of the tile begin?
    const int warp_row = 0, warp_column = warp * WN;  // HOLE
    const int warp_row = warp / (BN / WN) * WM, warp_column = warp % (BN / WN) * WN;  // ANSWER

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[WM / 16][WN / 16];
    for (auto& fragments : sum)
        for (auto& fragment : fragments) wmma::fill_fragment(fragment, 0.0f);
    if (warp_row >= BM || warp_column >= BN) return;
    for (int k0 = 0; k0 < k; k0 += 16)
        for (int i = 0; i < WM / 16; ++i)
            for (int j = 0; j < WN / 16; ++j) {
                wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
                wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
                wmma::load_matrix_sync(left, &a[(row + warp_row + 16 * i) * k + k0], k);
                wmma::load_matrix_sync(right, &b[k0 * n + column + warp_column + 16 * j], n);
                wmma::mma_sync(sum[i][j], left, right, sum[i][j]);
            }
    float* corner = d + (row + warp_row) * n + column + warp_column;
    for (int i = 0; i < WM / 16; ++i)
        for (int j = 0; j < WN / 16; ++j)
            wmma::store_matrix_sync(corner + 16 * i * n + 16 * j, sum[i][j], n, wmma::mem_row_major);
}
