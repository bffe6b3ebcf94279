// Two warps compute a 32 x 16 tile of D = A B; a ring of STAGES tiles is filled by cp.async.
#include <cuda_fp16.h>
#include <mma.h>
#include "ptx/cp_async.cuh"
using namespace nvcuda;
using namespace warptile;

constexpr int BM = 32, BN = 16, BK = 16;
struct alignas(32) Stage {
    __half a[BM][BK], b[BK][BN];
};

template <int STAGES>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    __shared__ Stage stages[STAGES];
    const int row = blockIdx.y * BM, column = blockIdx.x * BN, warp = threadIdx.x / 32, tiles = k / BK;
    const int i = threadIdx.x / 2, j = threadIdx.x % 2 * 8;  // each thread copies 16 bytes of A, half of them 16 of B
    const auto copy_tile = [&](int tile) {
        Stage& stage = stages[tile % STAGES];
        cp_async<16>(&stage.a[i][j], &a[(row + i) * k + tile * BK + j]);
        if (i < BK) cp_async<16>(&stage.b[i][j], &b[(tile * BK + i) * n + column + j]);
    };
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);

    for (int tile = 0; tile < STAGES - 1; ++tile) {
        copy_tile(tile);
        cp_async_commit_group();
    }
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + STAGES - 1 < tiles) {  // AS PRINTED
            copy_tile(tile + STAGES - 1);  // AS PRINTED
            cp_async_commit_group();  // AS PRINTED
        }  // AS PRINTED
        if (tile + STAGES - 1 < tiles) copy_tile(tile + STAGES - 1);  // MENDED
        cp_async_commit_group();  // MENDED
        cp_async_wait_group<STAGES - 1>();
        __syncthreads();
        wmma::load_matrix_sync(left, stages[tile % STAGES].a[warp * 16], BK);
        wmma::load_matrix_sync(right, stages[tile % STAGES].b[0], BN);
        wmma::mma_sync(sum, left, right, sum);
        __syncthreads();
    }
    wmma::store_matrix_sync(&d[(row + warp * 16) * n + column], sum, n, wmma::mem_row_major);
}
