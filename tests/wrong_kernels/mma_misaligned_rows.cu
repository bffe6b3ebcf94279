// Bug: Rows of A in shared memory are padded by 4 halves, so every other one starts in the middle of 16 bytes.
// On a GPU: A misaligned address.
// Fix: Pad by 8 halves, or swizzle: `ldmatrix` needs rows at multiples of 16 bytes.
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared_memory.cuh"
#include "warp_mma.h"

template <bool CORRECT>
__global__ void gemm(const __half* a, const __half* b, float* d, int m, int n, int k) {
    using MMA = Mma<__half, float, 16, 8, 16>;
    constexpr int PAD = CORRECT ? 8 : 4;  // BUG
    __shared__ alignas(16) __half padded[16][16 + PAD];
    __shared__ Tiles tiles;
    unsigned a_fragment[4], b_fragments[4];
    float sum[2][4] = {};
    const int lane = threadIdx.x;
    for (int k0 = 0; k0 < k; k0 += 16) {
        fill(tiles, a, b, n, k, k0);
        for (int at = lane; at < 256; at += 32)
            padded[at / 16][at % 16] = a[(blockIdx.y * 16 + at / 16) * k + k0 + at % 16];
        __syncwarp();
        ldmatrix_x4<false>(a_fragment, shared_address(&padded[lane % 16][lane / 16 * 8]));  // REPORTED: read
        load_b(b_fragments, tiles);
        MMA::mma_sync(sum[0], a_fragment, b_fragments);
        MMA::mma_sync(sum[1], a_fragment, b_fragments + 2);
        __syncwarp();
    }
    store(d, n, sum);
}
