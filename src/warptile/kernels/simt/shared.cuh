// simt-shared: a block stages tiles of A and B in shared memory, so that each element comes from global memory once
// a block and not once a thread.
#pragma once

#include "simt/operation.cuh"

namespace warptile {

// A block of BM x BN threads computes a BM x BN tile of D, one element a thread, BK elements along K at a time.
// Tiles are kept in the accumulator's type: an element is converted once, on its way in.
template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::BM* CONFIG::BN)
    simt_shared(const __grid_constant__ GemmParams<SimtOperation<CONFIG>> params) {
    using ELEMENT = typename CONFIG::ELEMENT;
    using ACCUMULATOR = typename CONFIG::ACCUMULATOR;
    constexpr bool B_COLUMN_MAJOR = CONFIG::B_COLUMN_MAJOR;
    constexpr unsigned BM = CONFIG::BM, BN = CONFIG::BN, BK = CONFIG::BK;
    const auto gemm = params.values();
    const int m = gemm.m, n = gemm.n, k = gemm.k;
    constexpr unsigned THREADS = BM * BN;
    __shared__ ACCUMULATOR a_tile[BM][BK];
    // B stored as [N, K] is read along K and written down a column: the odd pitch spreads that over the banks.
    __shared__ ACCUMULATOR b_tile[BK][BN + (B_COLUMN_MAJOR ? 1 : 0)];

    const unsigned tiles_n = tiles_along(n, BN);
    const unsigned block_row = blockIdx.x / tiles_n * BM, block_column = blockIdx.x % tiles_n * BN;
    const unsigned thread_row = threadIdx.x / BN, thread_column = threadIdx.x % BN;

    ACCUMULATOR accumulator = 0;
    for (unsigned k_offset = 0; k_offset < k; k_offset += BK) {
        // Neighbouring threads copy neighbours in memory; what lies outside the matrix is staged as zero.
        for (unsigned index = threadIdx.x; index < BM * BK; index += THREADS) {
            const unsigned i = index / BK, l = index % BK;
            const long long row = block_row + i, from = k_offset + l;
            a_tile[i][l] = static_cast<ACCUMULATOR>(row < m && from < k ? gemm.a[row * gemm.lda + from] : ELEMENT{});
        }
        for (unsigned index = threadIdx.x; index < BK * BN; index += THREADS) {
            const unsigned l = B_COLUMN_MAJOR ? index % BK : index / BN, j = B_COLUMN_MAJOR ? index / BK : index % BN;
            const long long from = k_offset + l, column = block_column + j;
            const long long at = B_COLUMN_MAJOR ? column * gemm.ldb + from : from * gemm.ldb + column;
            b_tile[l][j] = static_cast<ACCUMULATOR>(from < k && column < n ? gemm.b[at] : ELEMENT{});
        }
        __syncthreads();
#pragma unroll
        for (unsigned l = 0; l < BK; ++l) accumulator += a_tile[thread_row][l] * b_tile[l][thread_column];
        __syncthreads();  // no thread overwrites a tile that a slower warp still reads
    }

    const long long row = block_row + thread_row, column = block_column + thread_column;
    if (row < m && column < n) store_element(accumulator, gemm, row, column);
}

}  // namespace warptile
