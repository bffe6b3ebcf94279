// Bug: The threads swizzle by row number: row r of the tile has its chunks at chunk ^ (r % 8). The hardware swizzles
// by address, and the tile does not start at a multiple of 1024 bytes.
// On a GPU: A wrong result.
// Fix: Tiles at multiples of 1024 bytes.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const Half* a, const Half* b, float* d, int n, int k) {
    struct alignas(1024) Shared {
        int numbers[32];
        alignas(CORRECT ? 1024 : 128) Half a[BM][BK];  // BUG
        Half b[BN][BK];
    };
    __shared__ Shared shared;
    Accumulator sum;
    for (int tile = 0; tile < k / BK; ++tile) {
        fill(shared.a, a, k, blockIdx.y * BM, tile * BK);
        fill(shared.b, b, k, blockIdx.x * BN, tile * BK);
        fence_proxy_async();
        __syncthreads();
        sum.fence();
        for (int i = 0; i < BK / 16; ++i)
            sum.multiply(describe(shared.a) + i * NEXT_K, describe(shared.b) + i * NEXT_K);
        commit_wgmma();
        sum.wait<0>();
        __syncthreads();
    }
    sum.store(d, n);
}
