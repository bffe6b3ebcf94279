// Bug: Two stages and one barrier in the wrong place: a fast warp starts copying the next tile into the stage that a
// slower one still reads.
// On a GPU: Mostly right; wrong when warps drift apart, most of all with long mainloop iterations.
// Fix: A barrier at the end of the loop (or issue the copies after the existing one).
#include "ptx/cp_async.cuh"
#include "ring.h"

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    __shared__ Stage stages[2];
    WarpTile warp_tile;
    const int tiles = k / BK;
    copy_tile(stages[0], a, b, n, k, 0);
    cp_async_commit_group();
    for (int tile = 0; tile < tiles; ++tile) {
        if (tile + 1 < tiles) copy_tile(stages[(tile + 1) % 2], a, b, n, k, tile + 1);  // REPORTED: written
        cp_async_commit_group();
        cp_async_wait_group<1>();
        __syncthreads();
        warp_tile.load(stages[tile % 2]);  // REPORTED: read
        warp_tile.multiply();
        if (CORRECT) __syncthreads();  // BUG
    }
    warp_tile.store(d, n);
}
