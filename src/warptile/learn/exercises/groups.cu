// Two warps compute a 32 x 16 tile of D = A B; cp.async fills a ring of three stages.
#include <cuda_fp16.h>
#include <mma.h>
#include "ptx/cp_async.cuh"
using namespace nvcuda;
using namespace warptile;

constexpr int BM = 32, BN = 16, BK = 16, STAGES = 3;
struct alignas(32) Stage {
    __half a[BM][BK], b[BK][BN];
};

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    __shared__ Stage stages[STAGES];
    const int row = blockIdx.y * BM, column = blockIdx.x * BN, warp = threadIdx.x / 32, tiles = k / BK;
    const int i = threadIdx.x / 2, j = threadIdx.x % 2 * 8;  // each thread copies 16 bytes of A, half of them 16 of B
    const auto start_copy = [&](int tile) {
        Stage& stage = stages[tile % STAGES];
        cp_async<16>(&stage.a[i][j], &a[(row + i) * k + tile * BK + j]);
        if (i < BK) cp_async<16>(&stage.b[i][j], &b[(tile * BK + i) * n + column + j]);
    };
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        start_copy(tile);
        cp_async_commit_group();
    }
    for (int tile = 0; tile < tiles; ++tile) {
        const int ahead = tile + STAGES - 1;
        if (ahead < tiles) {  // HOLE
            start_copy(ahead);  // HOLE
            cp_async_commit_group();  // HOLE
        }  // HOLE
        if (ahead < tiles) start_copy(ahead);  // ANSWER
        cp_async_commit_group();  // ANSWER
        cp_async_wait_group<STAGES - 1>();
        __syncthreads();
        const Stage& stage = stages[tile % STAGES];
        wmma::load_matrix_sync(left, stage.a[16 * warp], BK);
        wmma::load_matrix_sync(right, stage.b[0], BN);
        wmma::mma_sync(sum, left, right, sum);
        __syncthreads();
    }
    wmma::store_matrix_sync(&d[(row + 16 * warp) * n + column], sum, n, wmma::mem_row_major);
}
