// wmma.load from shared memory. CUDA's own load_matrix_sync does the same, but for bfloat16, TF32 and float64 it
// compiles to loads through generic addresses, without ldmatrix; here the state space is part of the instruction.
// PTX ISA, "Warp-level matrix load instruction: wmma.load".
#pragma once

#include <cuda_bf16.h>
#include <mma.h>

#include "ptx/cp_async.cuh"

namespace warptile {

// The spelling of a modifier.
template <typename MODIFIER>
struct Spelled;
template <>
struct Spelled<nvcuda::wmma::matrix_a> {
    static constexpr char TEXT[] = "a";
};
template <>
struct Spelled<nvcuda::wmma::matrix_b> {
    static constexpr char TEXT[] = "b";
};
template <>
struct Spelled<nvcuda::wmma::row_major> {
    static constexpr char TEXT[] = "row";
};
template <>
struct Spelled<nvcuda::wmma::col_major> {
    static constexpr char TEXT[] = "col";
};
template <>
struct Spelled<__nv_bfloat16> {
    static constexpr char TEXT[] = "bf16";
};
#if __CUDA_ARCH__ >= 800
template <>
struct Spelled<nvcuda::wmma::precision::tf32> {
    static constexpr char TEXT[] = "tf32";
};
#endif
template <>
struct Spelled<double> {
    static constexpr char TEXT[] = "f64";
};

template <int M, int N, int K>
struct Shape;
template <>
struct Shape<16, 16, 16> {
    static constexpr char TEXT[] = "m16n16k16";
};
template <>
struct Shape<32, 8, 16> {
    static constexpr char TEXT[] = "m32n8k16";
};
template <>
struct Shape<8, 32, 16> {
    static constexpr char TEXT[] = "m8n32k16";
};
template <>
struct Shape<16, 16, 8> {
    static constexpr char TEXT[] = "m16n16k8";
};
template <>
struct Shape<8, 8, 4> {
    static constexpr char TEXT[] = "m8n8k4";
};

// `stride` is in elements. A fragment is two, four or eight 32-bit registers, or one 64-bit one.
template <typename USE, int M, int N, int K, typename PRECISION, typename LAYOUT, typename ELEMENT>
__device__ __forceinline__ void wmma_load_shared(nvcuda::wmma::fragment<USE, M, N, K, PRECISION, LAYOUT>& fragment,
                                                 const ELEMENT* tile, unsigned stride) {
    const unsigned address = shared_address(tile);
    if constexpr (sizeof(ELEMENT) == 8) {
        asm volatile("wmma.load.%3.sync.aligned.%4.%5.shared.%6 {%0}, [%1], %2;"
                     : "=d"(fragment.x[0])
                     : "r"(address), "r"(stride), "C"(Spelled<USE>::TEXT), "C"(Spelled<LAYOUT>::TEXT),
                       "C"(Shape<M, N, K>::TEXT), "C"(Spelled<PRECISION>::TEXT)
                     : "memory");
    } else {
        auto* x = reinterpret_cast<unsigned*>(fragment.x);
        constexpr int REGISTERS = sizeof(fragment.x) / 4;
        static_assert(REGISTERS == 2 || REGISTERS == 4 || REGISTERS == 8, "no fragment has another size");
        if constexpr (REGISTERS == 2) {
            asm volatile("wmma.load.%4.sync.aligned.%5.%6.shared.%7 {%0, %1}, [%2], %3;"
                         : "=r"(x[0]), "=r"(x[1])
                         : "r"(address), "r"(stride), "C"(Spelled<USE>::TEXT), "C"(Spelled<LAYOUT>::TEXT),
                           "C"(Shape<M, N, K>::TEXT), "C"(Spelled<PRECISION>::TEXT)
                         : "memory");
        } else if constexpr (REGISTERS == 4) {
            asm volatile("wmma.load.%6.sync.aligned.%7.%8.shared.%9 {%0, %1, %2, %3}, [%4], %5;"
                         : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                         : "r"(address), "r"(stride), "C"(Spelled<USE>::TEXT), "C"(Spelled<LAYOUT>::TEXT),
                           "C"(Shape<M, N, K>::TEXT), "C"(Spelled<PRECISION>::TEXT)
                         : "memory");
        } else {
            asm volatile("wmma.load.%10.sync.aligned.%11.%12.shared.%13 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                         : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]), "=r"(x[4]), "=r"(x[5]), "=r"(x[6]),
                           "=r"(x[7])
                         : "r"(address), "r"(stride), "C"(Spelled<USE>::TEXT), "C"(Spelled<LAYOUT>::TEXT),
                           "C"(Shape<M, N, K>::TEXT), "C"(Spelled<PRECISION>::TEXT)
                         : "memory");
        }
    }
}

}  // namespace warptile
