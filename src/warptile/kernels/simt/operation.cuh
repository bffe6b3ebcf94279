// What a CUDA-core kernel multiplies.
#pragma once

#include "tile/gemm.cuh"
#include "tile/scale.cuh"

namespace warptile {

// Types and layouts of a CUDA-core kernel's configuration.
template <typename CONFIG>
struct SimtOperation {
    using ELEMENT = typename CONFIG::ELEMENT;
    using ACCUMULATOR = typename CONFIG::ACCUMULATOR;
    using OUT = typename CONFIG::OUT;
    using SCALE = typename Scale<ACCUMULATOR>::type;
    using EPILOGUE = typename EpilogueOf<CONFIG>::type;
    static constexpr bool A_COLUMN_MAJOR = CONFIG::A_COLUMN_MAJOR, B_COLUMN_MAJOR = CONFIG::B_COLUMN_MAJOR;
    static constexpr bool D_COLUMN_MAJOR = false;
};

// The same of a kernel that also computes D^T = B^T A^T, where D has few columns: its D, the transpose, then lies by
// columns.
template <typename CONFIG>
struct SwappableOperation : SimtOperation<CONFIG> {
    static constexpr bool D_COLUMN_MAJOR = CONFIG::D_COLUMN_MAJOR;
};

// Stores one element of D, which lies `d_at` elements after the first one; that of C lies `c_at` after its first one.
template <typename ACCUMULATOR, typename GEMM>
__device__ __forceinline__ void store_element(ACCUMULATOR accumulator, const GEMM& gemm, long long row,
                                              long long column, long long c_at, long long d_at) {
    const ACCUMULATOR value[] = {accumulator};
    typename GEMM::OUT result[1];
    elements_of_d(value, gemm.c + c_at, result, gemm, static_cast<int>(row), static_cast<int>(column));
    gemm.d[d_at] = result[0];
}
template <typename ACCUMULATOR, typename GEMM>
__device__ __forceinline__ void store_element(ACCUMULATOR accumulator, const GEMM& gemm, long long row,
                                              long long column) {
    store_element(accumulator, gemm, row, column, gemm.c_offset(row, column), gemm.d_offset(row, column));
}

// THREADS threads store ROWS x COLUMNS elements of D from (row, column) on, those that are inside, from shared memory,
// where rows lie PITCH elements apart. Neighbouring threads take neighbours along a line of D: a row or, where D lies
// by columns, a column.
template <int ROWS, int COLUMNS, int PITCH, int THREADS, typename ACCUMULATOR, typename GEMM>
__device__ __forceinline__ void store_shared(const ACCUMULATOR* shared, const GEMM& gemm, long long row,
                                             long long column) {
    constexpr bool DOWN = GEMM::d_column_major();
    constexpr int LENGTH = DOWN ? ROWS : COLUMNS, LINES = DOWN ? COLUMNS : ROWS;
    constexpr int ALONG = LENGTH % 32 == 0 ? 32 : LENGTH & -LENGTH, ACROSS = THREADS / ALONG;  // threads
    const int thread = threadIdx.x % THREADS, first = thread / ALONG;
    const int lines = static_cast<int>(min(DOWN ? gemm.n - column : gemm.m - row, static_cast<long long>(LINES)));
#pragma unroll 1
    for (int along = thread % ALONG; along < LENGTH; along += ALONG) {
        if ((DOWN ? row : column) + along >= (DOWN ? gemm.m : gemm.n)) continue;
        const long long to = row + (DOWN ? along : first), at = column + (DOWN ? first : along);
        long long c_at = gemm.c_offset(to, at), d_at = gemm.d_offset(to, at);
        const ACCUMULATOR* value = shared + (DOWN ? along * PITCH + first : first * PITCH + along);
#pragma unroll 4
        for (int line = first; line < lines; line += ACROSS) {
            store_element(*value, gemm, DOWN ? to : row + line, DOWN ? column + line : at, c_at, d_at);
            value += ACROSS * (DOWN ? 1 : PITCH);
            c_at += ACROSS * gemm.ldc;
            d_at += ACROSS * gemm.ldd;
        }
    }
}

}  // namespace warptile
