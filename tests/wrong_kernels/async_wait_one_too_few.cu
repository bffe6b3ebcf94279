// Mistake: the wait leaves one group more open than the ring allows: that of the very tile that is read next.
// On a GPU: mostly right, as in a ring without its empty groups.
// Fix: of STAGES - 1 groups under way, all but STAGES - 2 must have arrived.
#include "ptx/cp_async.cuh"
#include "ring.h"

template <bool CORRECT>
__global__ void product(const __half* a, const __half* b, float* d, int m, int n, int k) {
    constexpr int STAGES = 3;
    __shared__ Stage stages[STAGES];
    WarpTile warp_tile;
    const int tiles = k / BK;
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
        copy_tile(stages[ahead], a, b, n, k, ahead);  // REPORTED: copied
        cp_async_commit_group();
    }
    for (int tile = 0; tile < tiles; ++tile) {
        cp_async_wait_group<CORRECT ? STAGES - 2 : STAGES - 1>();  // MISTAKE
        __syncthreads();
        const int next = tile + STAGES - 1;
        if (next < tiles) copy_tile(stages[next % STAGES], a, b, n, k, next);  // REPORTED: copied
        cp_async_commit_group();
        warp_tile.load(stages[tile % STAGES]);  // REPORTED: read
        warp_tile.multiply();
    }
    warp_tile.store(d, n);
}
