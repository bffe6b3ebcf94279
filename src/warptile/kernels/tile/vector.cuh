// Neighbouring elements of a row of D in one access.
#pragma once

#include "epilogue/fused.cuh"

namespace warptile {

// WIDTH neighbouring elements that are moved in one access.
template <typename ELEMENT, int WIDTH>
struct __align__(WIDTH * sizeof(ELEMENT)) Vector {
    ELEMENT elements[WIDTH];
};

// How many elements an element lies behind a multiple of BYTES bytes.
template <int BYTES, typename ELEMENT>
__device__ __forceinline__ int elements_past(const ELEMENT* element) {
    return static_cast<unsigned>(reinterpret_cast<unsigned long long>(element)) % BYTES / sizeof(ELEMENT);
}
template <typename ELEMENT>
__device__ __forceinline__ int elements_past_16_bytes(const ELEMENT* element) {
    return elements_past<16>(element);
}

// Scales WIDTH values and stores them at (row, column) of D with one access; C is read with one access.
template <int WIDTH, typename ACC_ELEMENT, typename GEMM>
__device__ __forceinline__ void store_vector(const Vector<ACC_ELEMENT, WIDTH>& values, const GEMM& gemm, long long row,
                                             long long column) {
    using OUT = typename GEMM::OUT;
    Vector<OUT, WIDTH> source, result;
    if (gemm.beta != typename GEMM::SCALE(0))
        source = *reinterpret_cast<const Vector<OUT, WIDTH>*>(gemm.c + (row * gemm.ldc + column));
    elements_of_d(values.elements, source.elements, result.elements, gemm, static_cast<int>(row),
                  static_cast<int>(column));
    *reinterpret_cast<Vector<OUT, WIDTH>*>(gemm.d + (row * gemm.ldd + column)) = result;
}

// The same with values read from shared memory, with as few accesses as 16 bytes each allow.
template <int WIDTH, typename ACC_ELEMENT, typename GEMM>
__device__ __forceinline__ void store_vector(const ACC_ELEMENT* from, const GEMM& gemm, long long row,
                                             long long column) {
    constexpr int FITS = 16 / sizeof(ACC_ELEMENT), READ = WIDTH < FITS ? WIDTH : FITS;
    Vector<ACC_ELEMENT, WIDTH> values;
#pragma unroll
    for (int i = 0; i < WIDTH; i += READ)
        *reinterpret_cast<Vector<ACC_ELEMENT, READ>*>(values.elements + i) =
            *reinterpret_cast<const Vector<ACC_ELEMENT, READ>*>(from + i);
    store_vector(values, gemm, row, column);
}

}  // namespace warptile
