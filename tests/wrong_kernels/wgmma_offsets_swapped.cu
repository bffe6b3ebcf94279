// Bug: Tiles without swizzle, in core matrices of 8 rows x 16 bytes. The next 8 rows follow directly, the next 8
// elements of K after all rows, and the descriptor's two offsets are swapped.
// On a GPU: A wrong result, with rows and K swapped, and from whatever follows the tiles.
// Fix: K-major without swizzle: the leading offset steps along K, the stride offset to the next 8 rows.
#include "hopper.h"

template <bool CORRECT>
__global__ void gemm(const Half* a, const Half* b, float* d, int n, int k) {
    __shared__ alignas(128) Half left[BM * BK], right[BN * BK];
    constexpr int NEXT_ROWS = 128;
    Accumulator sum;
    for (int tile = 0; tile < k / BK; ++tile) {
        fill_core_matrices<BM>(left, a, k, blockIdx.y * BM, tile * BK);
        fill_core_matrices<BN>(right, b, k, blockIdx.x * BN, tile * BK);
        fence_proxy_async();
        __syncthreads();
        sum.fence();
        for (int i = 0; i < BK / 16; ++i) {
            const Half *l = left + i * BM * 16, *r = right + i * BN * 16;
            const Descriptor a_descriptor = CORRECT ? describe(l, BM * 16, NEXT_ROWS, NO_SWIZZLE)
                                                    : describe(l, NEXT_ROWS, BM * 16, NO_SWIZZLE);  // BUG
            const Descriptor b_descriptor = CORRECT ? describe(r, BN * 16, NEXT_ROWS, NO_SWIZZLE)
                                                    : describe(r, NEXT_ROWS, BN * 16, NO_SWIZZLE);  // BUG
            sum.multiply(a_descriptor, b_descriptor);  // REPORTED: read
        }
        commit_wgmma();
        sum.wait<0>();
        __syncthreads();
    }
    sum.store(d, n);
}
