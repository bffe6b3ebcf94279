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

// Stores one element of D.
template <typename ACCUMULATOR, typename GEMM>
__device__ __forceinline__ void store_element(ACCUMULATOR accumulator, const GEMM& gemm, long long row,
                                              long long column) {
    const ACCUMULATOR value[] = {accumulator};
    typename GEMM::OUT result[1];
    elements_of_d(value, gemm.c + gemm.c_offset(row, column), result, gemm, static_cast<int>(row),
                  static_cast<int>(column));
    gemm.d[gemm.d_offset(row, column)] = result[0];
}

}  // namespace warptile
