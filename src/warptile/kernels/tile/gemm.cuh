// The matrices in global memory that a tensor-core kernel multiplies, whichever family it is of.
#pragma once

#include "epilogue/fused.cuh"
#include "ptx/elements.cuh"

namespace warptile {

// Matrix elements that one storage unit holds.
template <typename ELEMENT>
inline constexpr int ELEMENTS_IN = 1;
template <>
inline constexpr int ELEMENTS_IN<int4_packed> = 2;
template <>
inline constexpr int ELEMENTS_IN<uint4_packed> = 2;
template <>
inline constexpr int ELEMENTS_IN<bit_packed> = 8;

// D[m, n] = alpha * A[m, k] * B[k, n] + beta * C[m, n]: what every kernel takes, as one `__grid_constant__` struct or
// as the first member of one. k, lda and ldb are in storage units. Operands of an epilogue, if there is one, come
// first. The host writes these members in this order (rungs/kernel_spec.py, `gemm_members`).
template <typename OPERATION>
struct GemmParams : EpilogueOf<OPERATION>::type {
    using EPILOGUE = typename EpilogueOf<OPERATION>::type;
    using ELEMENT = typename OPERATION::ELEMENT;
    using ACCUMULATOR = typename OPERATION::ACCUMULATOR;
    using OUT = typename OPERATION::OUT;
    using SCALE = typename OPERATION::SCALE;

    const ELEMENT* a;
    const ELEMENT* b;
    const OUT* c;
    OUT* d;
    int m, n, k;
    long long lda, ldb, ldc, ldd;
    SCALE alpha, beta;

    // The members as values. A kernel that reads them through its parameter's address instead, or copies the struct as
    // a whole, makes the compiler load them again behind every asm statement.
    __device__ __forceinline__ GemmParams values() const {
        return {static_cast<const EPILOGUE&>(*this), a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    }

    // Address of A[row, k_offset].
    __device__ __forceinline__ const ELEMENT* a_at(int row, int k_offset) const {
        return OPERATION::A_COLUMN_MAJOR ? a + k_offset * lda + row : a + row * lda + k_offset;
    }

    // Address of B[k_offset, column].
    __device__ __forceinline__ const ELEMENT* b_at(int k_offset, int column) const {
        return OPERATION::B_COLUMN_MAJOR ? b + column * ldb + k_offset : b + k_offset * ldb + column;
    }

    // Whether D lies by columns, and C with it: of operations that say so.
    static constexpr __device__ __forceinline__ bool d_column_major() { return OPERATION::D_COLUMN_MAJOR; }

    // Elements from the first one of C to C[row, column]; and of D.
    __device__ __forceinline__ long long c_offset(long long row, long long column) const {
        return d_column_major() ? column * ldc + row : row * ldc + column;
    }
    __device__ __forceinline__ long long d_offset(long long row, long long column) const {
        return d_column_major() ? column * ldd + row : row * ldd + column;
    }
};

}  // namespace warptile
