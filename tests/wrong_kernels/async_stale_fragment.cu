// Bug: Fragments are loaded one tile ahead, to hide the load behind the MMAs, but before the wait for that tile.
// On a GPU: Now and then fragments of the tile that was in the stage before.
// Fix: Wait and synchronize, then load the next tile's fragments.
#include "ptx/cp_async.cuh"
#include "ring.h"

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    constexpr int STAGES = 3;
    __shared__ Stage stages[STAGES];
    WarpTile warp_tile;
    const int tiles = k / BK;
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
        copy_tile(stages[ahead], a, b, n, k, ahead);  // REPORTED: copied
        cp_async_commit_group();
    }
    cp_async_wait_group<STAGES - 2>();
    __syncthreads();
    warp_tile.load(stages[0]);
    for (int tile = 0; tile < tiles; ++tile) {
        warp_tile.multiply();
        const int next = tile + STAGES - 1;
        if (next < tiles) copy_tile(stages[next % STAGES], a, b, n, k, next);
        cp_async_commit_group();
        if (!CORRECT && tile + 1 < tiles) warp_tile.load(stages[(tile + 1) % STAGES]);  // BUG, REPORTED: read
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        if (CORRECT && tile + 1 < tiles) warp_tile.load(stages[(tile + 1) % STAGES]);
    }
    warp_tile.store(d, n);
}
