// Shared by the kernels with cp.async stages. Two warps compute a 32 x 16 tile of D with k-blocks of 16.
#pragma once

#include <cuda_fp16.h>
#include <mma.h>

#include "ptx/cp_async.cuh"

using namespace nvcuda;
using namespace warptile;

constexpr int BM = 32, BN = 16, BK = 16;

struct alignas(32) Stage {
    __half a[BM][BK], b[BK][BN];
};

// Starts the copies of k-block `tile`: each thread copies 16 bytes of A, the first half also 16 bytes of B.
__device__ __forceinline__ void copy_tile(Stage& stage, const __half* a, const __half* b, int n, int k, int tile) {
    const int i = threadIdx.x / 2, j = threadIdx.x % 2 * 8;
    cp_async<16>(&stage.a[i][j], a + (blockIdx.y * BM + i) * k + tile * BK + j);
    if (i < BK) cp_async<16>(&stage.b[i][j], b + (tile * BK + i) * n + blockIdx.x * BN + j);
}

// The 16 x 16 warp tile of D, and the fragments of the current k-block.
struct WarpTile {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;

    __device__ __forceinline__ WarpTile() { wmma::fill_fragment(sum, 0.0f); }

    __device__ __forceinline__ void load(const Stage& stage) {
        wmma::load_matrix_sync(a, stage.a[threadIdx.x / 32 * 16], BK);
        wmma::load_matrix_sync(b, stage.b[0], BN);
    }

    __device__ __forceinline__ void multiply() { wmma::mma_sync(sum, a, b, sum); }

    __device__ __forceinline__ void store(float* d, int n) {
        const int row = blockIdx.y * BM + threadIdx.x / 32 * 16, column = blockIdx.x * BN;
        wmma::store_matrix_sync(d + row * n + column, sum, n, wmma::mem_row_major);
    }
};
