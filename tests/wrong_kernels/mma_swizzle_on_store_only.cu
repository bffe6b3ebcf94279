// Mistake: the 16-byte chunks of A are stored at swizzled places, chunk ^ (row & 7), and loaded from plain ones.
// On a GPU: the chunks of a row change places along the depth. Rows 0 and 8 of a tile come out right, no others.
// Fix: one function for the place of a chunk, used by the store and by the load.
#include "ptx/matrix_move.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"
#include "warp_mma.h"

template <bool CORRECT>
__global__ void product(const __half* a, const __half* b, float* d, int m, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    __shared__ alignas(128) __half wide[16][64];  // rows of eight chunks
    __shared__ Tiles tiles;
    unsigned a_fragment[4], b_fragments[4];
    float sum[2][4] = {};
    const int lane = threadIdx.x, i = lane % 16;
    for (int depth = 0; depth < k; depth += 16) {
        if (depth % 64 == 0) {
            __syncwarp();
            for (int at = lane; at < 16 * 64; at += 32) {
                const int row = at / 64, chunk = at % 64 / 8;
                wide[row][(chunk ^ (row & 7)) * 8 + at % 8] = a[(blockIdx.y * 16 + row) * k + depth + at % 64];
            }
        }
        fill(tiles, a, b, n, k, depth);
        __syncwarp();
        const int chunk = depth % 64 / 8 + lane / 16;
        const int place = CORRECT ? chunk ^ (i & 7) : chunk;  // MISTAKE
        load_matrices<false>(a_fragment, shared_address(&wide[i][place * 8]));
        load_b(b_fragments, tiles);
        MMA::multiply(sum[0], a_fragment, b_fragments);
        MMA::multiply(sum[1], a_fragment, b_fragments + 2);
        __syncwarp();
    }
    store(d, n, sum);
}
