// Bug: The wait leaves one group too many in flight: that of the very tile that is read next.
// On a GPU: Mostly right, as in a pipeline without its empty groups.
// Fix: Of STAGES - 1 groups in flight, leave at most STAGES - 2 pending.
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
    for (int tile = 0; tile < tiles; ++tile) {
        cp_async_wait_group<CORRECT ? STAGES - 2 : STAGES - 1>();  // BUG
        __syncthreads();
        const int next = tile + STAGES - 1;
        if (next < tiles) copy_tile(stages[next % STAGES], a, b, n, k, next);  // REPORTED: copied
        cp_async_commit_group();
        warp_tile.load(stages[tile % STAGES]);  // REPORTED: read
        warp_tile.multiply();
    }
    warp_tile.store(d, n);
}
