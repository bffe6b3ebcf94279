// From accumulators straight to D: neighbouring sums in one access where D's alignment allows.
#pragma once

#include "ptx/warpgroup.cuh"
#include "tile/vector.cuh"
#include "tile/wgmma_accumulators.cuh"

namespace warptile {

// D or C at (row, column).
template <typename OPERATION, typename OUT>
__device__ __forceinline__ OUT* element_at(OUT* matrix, long long leading, int row, int column) {
    return matrix + (OPERATION::D_COLUMN_MAJOR ? column * leading + row : row * leading + column);
}

// The two elements of D that begin at (row, column), made of two sums. C is read where beta is not zero; without WITH_C it
// is.
template <bool WITH_C = true, typename OPERATION>
__device__ __forceinline__ Vector<typename OPERATION::OUT, 2> finished(typename OPERATION::SUM left,
                                                                       typename OPERATION::SUM right,
                                                                       const Gemm<OPERATION>& gemm, int row, int column) {
    using OUT = typename OPERATION::OUT;
    OUT source[2] = {};
    const auto beta = WITH_C ? gemm.beta : typename OPERATION::SCALE(0);
    if (beta != typename OPERATION::SCALE(0) && row < gemm.m) {
        if (column < gemm.n) source[0] = *element_at<OPERATION>(gemm.c, gemm.ldc, row, column);
        if (column + 1 < gemm.n) source[1] = *element_at<OPERATION>(gemm.c, gemm.ldc, row, column + 1);
    }
    return {scaled<OUT>(left, gemm.alpha, beta, &source[0]), scaled<OUT>(right, gemm.alpha, beta, &source[1])};
}

// Neighbouring elements of D, of this thread's sums in a block of 64 rows (`WgmmaAccumulators::pair`); the warpgroup's rows
// begin at (row, column).
template <bool WITH_C = true, typename OPERATION, typename ACCUMULATORS>
__device__ __forceinline__ Vector<typename OPERATION::OUT, 2> result(const ACCUMULATORS& accumulators,
                                                                     const Gemm<OPERATION>& gemm, int block, int eight,
                                                                     int half, int row, int column) {
    typename OPERATION::SUM left, right;
    accumulators.pair(block, eight, half, left, right);
    const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
    return finished<WITH_C>(left, right, gemm, row + 64 * block + accumulators.row_of(16 * warp + 8 * half + lane / 4),
                    column + 8 * eight + lane % 4 * 2);
}

// Finishes and stores two neighbouring sums as far as they lie inside D. With PAIRS rows of D are aligned to two elements.
template <bool PAIRS, typename OPERATION>
__device__ __forceinline__ void store_pair(typename OPERATION::SUM left, typename OPERATION::SUM right,
                                           const Gemm<OPERATION>& gemm, int row, int column) {
    if (row >= gemm.m || column >= gemm.n) return;
    const auto pair = finished(left, right, gemm, row, column);
    if (PAIRS && column + 1 < gemm.n) {
        *reinterpret_cast<Vector<typename OPERATION::OUT, 2>*>(element_at<OPERATION>(gemm.d, gemm.ldd, row, column)) = pair;
    } else {
        *element_at<OPERATION>(gemm.d, gemm.ldd, row, column) = pair.elements[0];
        if (column + 1 < gemm.n) *element_at<OPERATION>(gemm.d, gemm.ldd, row, column + 1) = pair.elements[1];
    }
}

// Stores what a warpgroup has of D, from (row, column) on. With PAIRS rows of D are aligned to two elements.
template <bool PAIRS, typename OPERATION, typename ACCUMULATORS>
__device__ __forceinline__ void store_directly(const ACCUMULATORS& accumulators, const Gemm<OPERATION>& gemm, int row,
                                               int column) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
#pragma unroll
    for (int block = 0; block < ACCUMULATORS::BLOCKS; ++block)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int r = row + 64 * block + accumulators.row_of(16 * warp + 8 * half + lane / 4);
#pragma unroll
            for (int eight = 0; eight < ACCUMULATORS::EIGHTS; ++eight) {
                const int c = column + 8 * eight + lane % 4 * 2;
                typename OPERATION::SUM left, right;
                accumulators.pair(block, eight, half, left, right);
                store_pair<PAIRS>(left, right, gemm, r, c);
            }
        }
}

}  // namespace warptile
