// One warp computes a 16 x 16 tile of D = A B, writes it to shared memory and has bulk copies store its rows.
#include <cuda_fp16.h>
#include <mma.h>
#include "ptx/cp_async_bulk_tensor.cuh"
#include "ptx/shared_memory.cuh"
using namespace nvcuda;
using namespace warptile;

constexpr int TILE = 16;

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    __shared__ alignas(128) float out[TILE][TILE];
    const int row = blockIdx.y * TILE, column = blockIdx.x * TILE, lane = threadIdx.x;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k0 = 0; k0 < k; k0 += TILE) {
        wmma::load_matrix_sync(left, &a[row * k + k0], k);
        wmma::load_matrix_sync(right, &b[k0 * n + column], n);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(out[0], sum, TILE, wmma::mem_row_major);
    fence_proxy_async();  // ANSWER
    __syncwarp();
    if (lane < TILE) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(&d[(row + lane) * n + column]),
                     "r"(shared_address(out[lane])), "n"(TILE * sizeof(float))
                     : "memory");
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<0>();
    }
}
