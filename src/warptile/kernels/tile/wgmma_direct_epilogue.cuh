// The direct epilogue: from accumulators straight to global memory, two neighbouring elements in one access where D's
// alignment allows.
#pragma once

#include "ptx/warpgroup.cuh"
#include "tile/vector.cuh"
#include "tile/wgmma_accumulators.cuh"

namespace warptile {

// The element of D or C at (row, column).
template <typename OPERATION, typename OUT>
__device__ __forceinline__ OUT* element_at(OUT* matrix, long long leading, int row, int column) {
    return matrix + (OPERATION::D_COLUMN_MAJOR ? column * leading + row : row * leading + column);
}

// The two elements of D at (row, column) and its right neighbour: alpha * accumulator + beta * C. C is read where beta
// is not zero; without WITH_C it is known to be zero.
template <bool WITH_C = true, typename OPERATION>
__device__ __forceinline__ Vector<typename OPERATION::OUT, 2> epilogue_pair(typename OPERATION::ACC_ELEMENT left,
                                                                            typename OPERATION::ACC_ELEMENT right,
                                                                            const GemmParams<OPERATION>& gemm, int row,
                                                                            int column) {
    using OUT = typename OPERATION::OUT;
    OUT source[2] = {};
    const auto beta = WITH_C ? gemm.beta : typename OPERATION::SCALE(0);
    if (beta != typename OPERATION::SCALE(0) && row < gemm.m) {
        if (column < gemm.n) source[0] = *element_at<OPERATION>(gemm.c, gemm.ldc, row, column);
        if (column + 1 < gemm.n) source[1] = *element_at<OPERATION>(gemm.c, gemm.ldc, row, column + 1);
    }
    constexpr bool SATURATED = SATURATES<typename OPERATION::ACCUMULATOR>;
    return {scaled<OUT, SATURATED>(left, gemm.alpha, beta, &source[0]),
            scaled<OUT, SATURATED>(right, gemm.alpha, beta, &source[1])};
}

// The same for the pair that this thread holds in a block of 64 rows (`AccumulatorTile::pair`); the warpgroup's part of
// D begins at (row, column).
template <bool WITH_C = true, typename OPERATION, typename ACCUMULATORS>
__device__ __forceinline__ Vector<typename OPERATION::OUT, 2> epilogue_pair(const ACCUMULATORS& accumulators,
                                                                            const GemmParams<OPERATION>& gemm, int m64,
                                                                            int n8, int half, int row, int column) {
    typename OPERATION::ACC_ELEMENT left, right;
    accumulators.pair(m64, n8, half, left, right);
    const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
    return epilogue_pair<WITH_C>(left, right, gemm,
                                 row + 64 * m64 + accumulators.row_of(16 * warp + 8 * half + lane / 4),
                                 column + 8 * n8 + lane % 4 * 2);
}

// Stores two neighbouring elements as far as they lie inside D. PAIRS: rows of D are aligned to two elements.
template <bool PAIRS, typename OPERATION>
__device__ __forceinline__ void store_pair(typename OPERATION::ACC_ELEMENT left, typename OPERATION::ACC_ELEMENT right,
                                           const GemmParams<OPERATION>& gemm, int row, int column) {
    if (row >= gemm.m || column >= gemm.n) return;
    const auto pair = epilogue_pair(left, right, gemm, row, column);
    if (PAIRS && column + 1 < gemm.n) {
        *reinterpret_cast<Vector<typename OPERATION::OUT, 2>*>(element_at<OPERATION>(gemm.d, gemm.ldd, row, column)) =
            pair;
    } else {
        *element_at<OPERATION>(gemm.d, gemm.ldd, row, column) = pair.elements[0];
        if (column + 1 < gemm.n) *element_at<OPERATION>(gemm.d, gemm.ldd, row, column + 1) = pair.elements[1];
    }
}

// Stores a warpgroup's part of D, from (row, column) on.
template <bool PAIRS, typename OPERATION, typename ACCUMULATORS>
__device__ __forceinline__ void store_directly(const ACCUMULATORS& accumulators, const GemmParams<OPERATION>& gemm,
                                               int row, int column) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
#pragma unroll
    for (int m64 = 0; m64 < ACCUMULATORS::M64_BLOCKS; ++m64)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int r = row + 64 * m64 + accumulators.row_of(16 * warp + 8 * half + lane / 4);
#pragma unroll
            for (int n8 = 0; n8 < ACCUMULATORS::N8_BLOCKS; ++n8) {
                const int c = column + 8 * n8 + lane % 4 * 2;
                typename OPERATION::ACC_ELEMENT left, right;
                accumulators.pair(m64, n8, half, left, right);
                store_pair<PAIRS>(left, right, gemm, r, c);
            }
        }
}

}  // namespace warptile
