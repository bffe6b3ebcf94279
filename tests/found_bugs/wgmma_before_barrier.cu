// Bug: Every thread waits for its own `cp.async` copies, and `wgmma` reads the tile that others have copied too. No
// barrier stands between the wait and the product.
// Provoked by: The last warp of the warpgroup copies the whole tile, and is late. What the tile held before is the
// operand of the previous round.
// Fix: `__syncthreads()` behind the wait.
#include "provoke.h"

constexpr int HALVES = 8 * 16;         // B: 8 columns, 16 of K, as two core matrices of 8 columns x 16 bytes
constexpr unsigned ONES = 0x3C003C00;  // two elements of A: each is 1, so that D has the sums of B's columns

__device__ __forceinline__ void multiply(float (&sum)[4], unsigned long long b) {
    unsigned a = ONES;
    asm volatile("wgmma.fence.sync.aligned;"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+r"(a)::"memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %4, %4, %4}, %5, 0, 1, 1, 0;"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a), "l"(b)
                 : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])::"memory");
}

template <bool CORRECTED>
__global__ void __launch_bounds__(128) pattern(float* out, const unsigned short* in, int rounds, int late) {
    __shared__ alignas(128) unsigned short tile[HALVES];
    tile[threadIdx.x] = 0;
    fence_proxy_async();
    // No swizzle; the core matrices lie 128 bytes apart.
    const unsigned long long b = 8ull << 32 | 8ull << 16 | (shared_address(tile) >> 4 & 0x3FFF);
    for (int round = 0; round < rounds; ++round) {
        __syncthreads();
        const int lane = threadIdx.x - 96;
        if (lane >= 0) {
            delay(late);
            const unsigned short* from = in + (blockIdx.x * rounds + round) * HALVES;
            if (lane < 16) cp_async<16>(&tile[lane * 8], from + lane * 8);  // REPORTED: copied
        }
        cp_async_commit_group();
        cp_async_wait_group<0>();
        fence_proxy_async();
        if (CORRECTED) __syncthreads();  // BUG
        float sum[4] = {};
        multiply(sum, b);  // REPORTED: read
        float* to = out + ((blockIdx.x * rounds + round) * 128 + threadIdx.x) * 4;
        for (int i = 0; i < 4; ++i) to[i] = sum[i];
    }
}
