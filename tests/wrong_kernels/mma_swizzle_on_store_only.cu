// Bug: The 16-byte chunks of A are stored swizzled, at chunk ^ (row & 7), and loaded unswizzled.
// On a GPU: The chunks of a row are permuted along K. Rows 0 and 8 of a tile are right, no others.
// Fix: One function that computes the position of a chunk, used by store and load.
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared_memory.cuh"
#include "warp_mma.h"

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    __shared__ alignas(128) __half wide[16][64];  // rows of eight chunks
    __shared__ Tiles tiles;
    unsigned a_fragment[4], b_fragments[4];
    float sum[2][4] = {};
    const int lane = threadIdx.x, i = lane % 16;
    for (int k0 = 0; k0 < k; k0 += 16) {
        if (k0 % 64 == 0) {
            __syncwarp();
            for (int at = lane; at < 16 * 64; at += 32) {
                const int row = at / 64, chunk = at % 64 / 8;
                wide[row][(chunk ^ (row & 7)) * 8 + at % 8] = a[(blockIdx.y * 16 + row) * k + k0 + at % 64];
            }
        }
        fill(tiles, a, b, n, k, k0);
        __syncwarp();
        const int chunk = k0 % 64 / 8 + lane / 16;
        const int physical = CORRECT ? chunk ^ (i & 7) : chunk;  // BUG
        ldmatrix_x4<false>(a_fragment, shared_address(&wide[i][physical * 8]));
        load_b(b_fragments, tiles);
        MMA::mma_sync(sum[0], a_fragment, b_fragments);
        MMA::mma_sync(sum[1], a_fragment, b_fragments + 2);
        __syncwarp();
    }
    store(d, n, sum);
}
