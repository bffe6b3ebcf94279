// simt-naive: one thread, one element. Every operand element comes from global memory each time it is needed.
#pragma once

#include "simt/operation.cuh"

namespace warptile {

// A block of BM x BN threads computes a BM x BN tile of D. Threads that are neighbours in a warp are neighbours in
// a row of D, so their loads of a row-major B coalesce and their loads of A are one broadcast.
template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::BM* CONFIG::BN)
    simt_naive(const __grid_constant__ GemmParams<SimtOperation<CONFIG>> params) {
    using ELEMENT = typename CONFIG::ELEMENT;
    using ACCUMULATOR = typename CONFIG::ACCUMULATOR;
    constexpr bool B_COLUMN_MAJOR = CONFIG::B_COLUMN_MAJOR;
    constexpr unsigned BM = CONFIG::BM, BN = CONFIG::BN;
    const auto gemm = params.values();
    const unsigned tiles_n = tiles_along(gemm.n, BN);
    const long long row = blockIdx.x / tiles_n * BM + threadIdx.x / BN;
    const long long column = blockIdx.x % tiles_n * BN + threadIdx.x % BN;
    if (row >= gemm.m || column >= gemm.n) return;

    const ELEMENT* a_element = gemm.a + row * gemm.lda;                                 // A[row, 0]
    const ELEMENT* b_element = gemm.b + (B_COLUMN_MAJOR ? column * gemm.ldb : column);  // B[0, column]
    const long long b_step = B_COLUMN_MAJOR ? 1 : gemm.ldb;  // from B[i, column] to B[i + 1, column]

    ACCUMULATOR accumulator = 0;
    for (int i = 0; i < gemm.k; ++i) {
        accumulator += static_cast<ACCUMULATOR>(*a_element) * static_cast<ACCUMULATOR>(*b_element);
        a_element += 1;
        b_element += b_step;
    }
    store_element(accumulator, gemm, row, column);
}

}  // namespace warptile
