// Mistake: rows of A in shared memory are padded by 4 halves, so that every other one begins in the middle of 16
// bytes.
// On a GPU: a misaligned address.
// Fix: pad by 8 halves, or swizzle: `ldmatrix` takes rows at multiples of 16 bytes.
#include "ptx/matrix_move.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"
#include "warp_mma.h"

template <bool CORRECT>
__global__ void product(const __half* a, const __half* b, float* d, int m, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    constexpr int PAD = CORRECT ? 8 : 4;  // MISTAKE
    __shared__ alignas(16) __half padded[16][16 + PAD];
    __shared__ Tiles tiles;
    unsigned a_fragment[4], b_fragments[4];
    float sum[2][4] = {};
    const int lane = threadIdx.x;
    for (int depth = 0; depth < k; depth += 16) {
        fill(tiles, a, b, n, k, depth);
        for (int at = lane; at < 256; at += 32)
            padded[at / 16][at % 16] = a[(blockIdx.y * 16 + at / 16) * k + depth + at % 16];
        __syncwarp();
        load_matrices<false>(a_fragment, shared_address(&padded[lane % 16][lane / 16 * 8]));  // REPORTED: read
        load_b(b_fragments, tiles);
        MMA::multiply(sum[0], a_fragment, b_fragments);
        MMA::multiply(sum[1], a_fragment, b_fragments + 2);
        __syncwarp();
    }
    store(d, n, sum);
}
