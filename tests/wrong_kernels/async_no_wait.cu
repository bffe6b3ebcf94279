// Bug: A barrier but no wait: `__syncthreads()` says nothing about copies in flight.
// On a GPU: What the stage held before: nothing, or the previous tile.
// Fix: `cp.async.wait_group`, then the barrier.
#include "ptx/cp_async.cuh"
#include "ring.h"

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    __shared__ Stage stage;
    WarpTile warp_tile;
    for (int tile = 0; tile < k / BK; ++tile) {
        copy_tile(stage, a, b, n, k, tile);  // REPORTED: copied
        cp_async_commit_group();
        if (CORRECT) cp_async_wait_group<0>();  // BUG
        __syncthreads();
        warp_tile.load(stage);  // REPORTED: read
        warp_tile.multiply();
        __syncthreads();
    }
    warp_tile.store(d, n);
}
