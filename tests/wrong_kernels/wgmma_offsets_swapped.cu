// Mistake: tiles without a swizzle, in core matrices of 8 rows x 16 bytes. Those of the next rows follow at once, those
// of the next 8 of depth behind all rows, and the descriptor's two offsets are given the wrong way round.
// On a GPU: a wrong product, of rows and depths exchanged and of what lies behind the tiles.
// Fix: K-major without a swizzle: the leading offset leads along the depth, the stride offset to the next 8 rows.
#include "hopper.h"

template <bool CORRECT>
__global__ void product(const Half* a, const Half* b, float* d, int n, int k) {
    __shared__ alignas(128) Half left[BM * BK], right[BN * BK];
    constexpr int NEXT_ROWS = 128;
    Accumulator sum;
    for (int tile = 0; tile < k / BK; ++tile) {
        fill_core_matrices<BM>(left, a, k, blockIdx.y * BM, tile * BK);
        fill_core_matrices<BN>(right, b, k, blockIdx.x * BN, tile * BK);
        fence_async_proxy();
        __syncthreads();
        sum.fence();
        for (int i = 0; i < BK / 16; ++i) {
            const Half *l = left + i * BM * 16, *r = right + i * BN * 16;
            const Descriptor l_place = CORRECT ? describe(l, BM * 16, NEXT_ROWS, NO_SWIZZLE)
                                               : describe(l, NEXT_ROWS, BM * 16, NO_SWIZZLE);  // MISTAKE
            const Descriptor r_place = CORRECT ? describe(r, BN * 16, NEXT_ROWS, NO_SWIZZLE)
                                               : describe(r, NEXT_ROWS, BN * 16, NO_SWIZZLE);  // MISTAKE
            sum.multiply(l_place, r_place);                                                    // REPORTED: read
        }
        commit_products();
        sum.wait<0>();
        __syncthreads();
    }
    sum.store(d, n);
}
