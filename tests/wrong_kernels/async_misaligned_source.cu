// Bug: A is a submatrix that starts 8 bytes into its rows, but is copied 16 bytes at a time.
// On a GPU: A misaligned address, which ends the context.
// Fix: Use the copy width that pointer and leading dimension allow: here 8 bytes.
#include "ptx/cp_async.cuh"
#include "ring.h"

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k, int lda) {
    constexpr int BYTES = CORRECT ? 8 : 16, WIDTH = BYTES / 2;  // BUG
    __shared__ Stage stage;
    WarpTile warp_tile;
    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int at = threadIdx.x * WIDTH; at < BM * BK; at += blockDim.x * WIDTH)
            cp_async<BYTES>(&stage.a[at / BK][at % BK],  // REPORTED: read
                            a + (blockIdx.y * BM + at / BK) * lda + k0 + at % BK);
        for (int at = threadIdx.x * 8; at < BK * BN; at += blockDim.x * 8)
            cp_async<16>(&stage.b[at / BN][at % BN], b + (k0 + at / BN) * n + blockIdx.x * BN + at % BN);
        cp_async_commit_group();
        cp_async_wait_group<0>();
        __syncthreads();
        warp_tile.load(stage);
        warp_tile.multiply();
        __syncthreads();
    }
    warp_tile.store(d, n);
}
