// Mistake: A is a part of a larger matrix that begins 8 bytes into its rows, and it is copied 16 bytes at a time.
// On a GPU: a misaligned address, and with it the end of the context.
// Fix: copies as wide as pointer and pitch allow: here 8 bytes.
#include "ptx/cp_async.cuh"
#include "ring.h"

template <bool CORRECT>
__global__ void product(const __half* a, const __half* b, float* d, int m, int n, int k, int lda) {
    constexpr int BYTES = CORRECT ? 8 : 16, WIDTH = BYTES / 2;  // MISTAKE
    __shared__ Stage stage;
    WarpTile warp_tile;
    for (int depth = 0; depth < k; depth += BK) {
        for (int at = threadIdx.x * WIDTH; at < BM * BK; at += blockDim.x * WIDTH)
            cp_async<BYTES>(&stage.a[at / BK][at % BK],  // REPORTED: read
                            a + (blockIdx.y * BM + at / BK) * lda + depth + at % BK);
        for (int at = threadIdx.x * 8; at < BK * BN; at += blockDim.x * 8)
            cp_async<16>(&stage.b[at / BN][at % BN], b + (depth + at / BN) * n + blockIdx.x * BN + at % BN);
        cp_async_commit_group();
        cp_async_wait_group<0>();
        __syncthreads();
        warp_tile.load(stage);
        warp_tile.multiply();
        __syncthreads();
    }
    warp_tile.store(d, n);
}
