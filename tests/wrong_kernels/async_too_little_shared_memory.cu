// Bug: The launch requests one stage less of dynamic shared memory than the pipeline has.
// On a GPU: A fault, or nothing where a CTA's allocation is rounded up by as much.
// Fix: STAGES * sizeof(Stage) bytes, stated beside the kernel.
#include "ptx/cp_async.cuh"
#include "ring.h"

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    constexpr int STAGES = 3;  // BUG: launched with memory for two
    extern __shared__ Stage stages[];
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
        if (next < tiles) copy_tile(stages[next % STAGES], a, b, n, k, next);  // REPORTED: written
        cp_async_commit_group();
        warp_tile.load(stages[tile % STAGES]);
        warp_tile.multiply();
    }
    warp_tile.store(d, n);
}
