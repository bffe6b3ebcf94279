// What a WMMA kernel computes with: element types, fragment shape, and the matrices in global memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include "ptx/elements.cuh"
#include "ptx/wmma_load.cuh"
#include "tile/gemm.cuh"
#include "tile/scale.cuh"
#include "tile/traits.cuh"

namespace warptile {

namespace wmma = nvcuda::wmma;

// How WMMA names a storage type.
template <typename ELEMENT>
struct Storage {
    using precision = ELEMENT;
};
#if __CUDA_ARCH__ >= 800
template <>
struct Storage<float> {
    using precision = wmma::precision::tf32;
};
#endif
template <>
struct Storage<int4_packed> {
    using precision = wmma::experimental::precision::s4;
};
template <>
struct Storage<uint4_packed> {
    using precision = wmma::experimental::precision::u4;
};
template <>
struct Storage<bit_packed> {
    using precision = wmma::experimental::precision::b1;
};

// Types, major of B and fragment shape FM x FN x FK (in elements). A is row-major; B is [K, N] (row-major) or
// stored as [N, K] (column-major).
template <typename ELEMENT_, typename ACCUMULATOR_, typename OUT_, bool B_COLUMN_MAJOR_, int FM_, int FN_, int FK_>
struct Operation {
    using ELEMENT = ELEMENT_;
    using ACCUMULATOR = ACCUMULATOR_;
    using OUT = OUT_;
    using SCALE = typename Scale<ACCUMULATOR>::type;
    static constexpr bool A_COLUMN_MAJOR = false, B_COLUMN_MAJOR = B_COLUMN_MAJOR_;
    static constexpr int FM = FM_, FN = FN_, FK = FK_;

    // A unit is what is addressed: an element, or the byte that holds several. All offsets along K below are in units.
    static constexpr int ELEMENTS_PER_UNIT = ELEMENTS_IN<ELEMENT>;
    static constexpr int K_BLOCK = FK / ELEMENTS_PER_UNIT;  // of one fragment, along K
    static constexpr int PAD_UNIT = 16 / sizeof(ELEMENT);   // 16 bytes: every shared row starts on such a boundary

    // Types whose load_matrix_sync does not find out by itself that a matrix is in shared memory.
    static constexpr bool NEEDS_STATE_SPACE =
        SAME<ELEMENT, __nv_bfloat16> || SAME<ELEMENT, float> || SAME<ELEMENT, double>;

    using PRECISION = typename Storage<ELEMENT>::precision;
    using B_LAYOUT = typename Choice<B_COLUMN_MAJOR, wmma::col_major, wmma::row_major>::type;
    using A = wmma::fragment<wmma::matrix_a, FM, FN, FK, PRECISION, wmma::row_major>;
    using B = wmma::fragment<wmma::matrix_b, FM, FN, FK, PRECISION, B_LAYOUT>;
    using C = wmma::fragment<wmma::accumulator, FM, FN, FK, ACCUMULATOR>;

#if __CUDA_ARCH__ < 800
    static_assert(!NEEDS_STATE_SPACE && !SAME<ELEMENT, bit_packed>,
                  "fragments of bfloat16, TF32, float64 and (for AND) bits need sm_80");
#endif
    static_assert(ELEMENTS_PER_UNIT == 1 || B_COLUMN_MAJOR, "types narrower than a byte need B stored as [N, K]");
};

// TF32 keeps 10 of float's 23 fraction bits: round to nearest here, the tensor core would only truncate them.
template <typename OPERATION, typename FRAGMENT>
__device__ __forceinline__ void round_fragment(FRAGMENT& fragment) {
#if __CUDA_ARCH__ >= 800
    if constexpr (SAME<typename OPERATION::ELEMENT, float>) {
#pragma unroll
        for (int i = 0; i < fragment.num_elements; ++i) fragment.x[i] = wmma::__float_to_tf32(fragment.x[i]);
    }
#endif
}

// Loads an A or B fragment from anywhere; rows (columns) of its matrix are `stride` units apart.
template <typename OPERATION, typename FRAGMENT>
__device__ __forceinline__ void load_fragment(FRAGMENT& fragment, const typename OPERATION::ELEMENT* matrix,
                                              unsigned stride) {
    if constexpr (OPERATION::ELEMENTS_PER_UNIT == 1) {
        wmma::load_matrix_sync(fragment, matrix, stride);
    } else {
        wmma::load_matrix_sync(fragment, static_cast<const void*>(matrix), stride * OPERATION::ELEMENTS_PER_UNIT);
    }
    round_fragment<OPERATION>(fragment);
}

// The same from shared memory.
template <typename OPERATION, typename FRAGMENT>
__device__ __forceinline__ void load_shared_fragment(FRAGMENT& fragment, const typename OPERATION::ELEMENT* matrix,
                                                     unsigned stride) {
    if constexpr (OPERATION::NEEDS_STATE_SPACE) {
        wmma_load_shared(fragment, matrix, stride);
        round_fragment<OPERATION>(fragment);
    } else {
        load_fragment<OPERATION>(fragment, matrix, stride);
    }
}

// c += a * b on the tensor core. For bits the product is AND and the sum counts ones.
template <typename OPERATION>
__device__ __forceinline__ void multiply_fragments(typename OPERATION::C& c, const typename OPERATION::A& a,
                                                   const typename OPERATION::B& b) {
#if __CUDA_ARCH__ >= 800
    if constexpr (SAME<typename OPERATION::ELEMENT, bit_packed>) {
        wmma::bmma_sync(c, a, b, c, wmma::experimental::bmmaBitOpAND, wmma::experimental::bmmaAccumulateOpPOPC);
        return;
    }
#endif
    if constexpr (!SAME<typename OPERATION::ELEMENT, bit_packed>) wmma::mma_sync(c, a, b, c);
}

}  // namespace warptile
