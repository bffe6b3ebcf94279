// Bug: A multistage pipeline as in two published listings: a group is committed only while there is a tile to copy,
// and the wait always leaves STAGES - 2 groups in flight. On the last tiles nothing new is committed, so the wait
// covers nothing.
// On a GPU: Mostly right, as the last copies have had enough time; wrong when memory is busy.
// Fix: Commit a group in every iteration, an empty one at the tail.
#include "ptx/cp_async.cuh"
#include "ring.h"

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    constexpr int STAGES = 3;
    __shared__ Stage stages[STAGES];
    WarpTile warp_tile;
    const int tiles = k / BK;
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
        copy_tile(stages[ahead], a, b, n, k, ahead);
        cp_async_commit_group();
    }
    for (int tile = 0; tile < tiles; ++tile) {
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        const int next = tile + STAGES - 1;
        if (next < tiles) copy_tile(stages[next % STAGES], a, b, n, k, next);  // REPORTED: copied
        if (CORRECT || next < tiles) cp_async_commit_group();  // BUG
        warp_tile.load(stages[tile % STAGES]);                 // REPORTED: read
        warp_tile.multiply();
    }
    warp_tile.store(d, n);
}
