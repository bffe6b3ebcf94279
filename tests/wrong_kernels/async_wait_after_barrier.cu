// Mistake: the wait stands behind the barrier. It speaks of a thread's own copies only, so the other threads' may
// still be under way when the tile is read.
// On a GPU: mostly right; wrong when one warp's copies take longer than another's.
// Fix: wait first, then meet: after the barrier everybody's copies have arrived.
#include "ptx/cp_async.cuh"
#include "ring.h"

template <bool CORRECT>
__global__ void product(const __half* a, const __half* b, float* d, int m, int n, int k) {
    __shared__ Stage stage;
    WarpTile warp_tile;
    for (int tile = 0; tile < k / BK; ++tile) {
        copy_tile(stage, a, b, n, k, tile);  // REPORTED: written
        cp_async_commit_group();
        if (CORRECT) cp_async_wait_group<0>();
        __syncthreads();
        if (!CORRECT) cp_async_wait_group<0>();  // MISTAKE
        warp_tile.load(stage);                   // REPORTED: read
        warp_tile.multiply();
        __syncthreads();
    }
    warp_tile.store(d, n);
}
