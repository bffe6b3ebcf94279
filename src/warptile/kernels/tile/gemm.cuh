// The matrices in global memory that a tensor-core kernel multiplies, whichever family it is of.
#pragma once

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

// D[m, n] = alpha * A[m, k] * B[k, n] + beta * C[m, n]. The kernels' parameters, with k, lda and ldb in units.
template <typename OPERATION>
struct Gemm {
    using ELEMENT = typename OPERATION::ELEMENT;
    using OUT = typename OPERATION::OUT;
    using SCALE = typename OPERATION::SCALE;

    const ELEMENT* a;
    const ELEMENT* b;
    const OUT* c;
    OUT* d;
    int m, n, k;
    long long lda, ldb, ldc, ldd;
    SCALE alpha, beta;

    __device__ __forceinline__ Gemm(const ELEMENT* a, const ELEMENT* b, const OUT* c, OUT* d, int m, int n, int k,
                                    long long lda, long long ldb, long long ldc, long long ldd, SCALE alpha, SCALE beta)
        : a(a), b(b), c(c), d(d), m(m), n(n), k(k / OPERATION::ELEMENTS_PER_UNIT),
          lda(lda / OPERATION::ELEMENTS_PER_UNIT), ldb(ldb / OPERATION::ELEMENTS_PER_UNIT), ldc(ldc), ldd(ldd),
          alpha(alpha), beta(beta) {}

    // Address of A[row, depth].
    __device__ __forceinline__ const ELEMENT* a_at(int row, int depth) const {
        return OPERATION::A_COLUMN_MAJOR ? a + depth * lda + row : a + row * lda + depth;
    }

    // Address of B[depth, column].
    __device__ __forceinline__ const ELEMENT* b_at(int depth, int column) const {
        return OPERATION::B_COLUMN_MAJOR ? b + column * ldb + depth : b + depth * ldb + column;
    }
};

}  // namespace warptile
