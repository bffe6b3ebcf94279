// Bug: The wait follows the barrier. It covers only a thread's own copies, so the other threads' may still be in
// flight when the tile is read.
// On a GPU: Mostly right; wrong when one warp's copies take longer than another's.
// Fix: Wait first, then synchronize: after the barrier all threads' copies have completed.
#include "ptx/cp_async.cuh"
#include "ring.h"

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    __shared__ Stage stage;
    WarpTile warp_tile;
    for (int tile = 0; tile < k / BK; ++tile) {
        copy_tile(stage, a, b, n, k, tile);  // REPORTED: written
        cp_async_commit_group();
        if (CORRECT) cp_async_wait_group<0>();
        __syncthreads();
        if (!CORRECT) cp_async_wait_group<0>();  // BUG
        warp_tile.load(stage);                   // REPORTED: read
        warp_tile.multiply();
        __syncthreads();
    }
    warp_tile.store(d, n);
}
