// mma.sync and mma.sp: one wrapper for each instruction whose A and B have the same type.
//
// Written by `python -m warptile.isa.wrappers.mma --write` from the tables in isa/mma.py and isa/mma_sp.py: change those.
// PTX ISA, "Multiply-and-Accumulate Instruction: mma" and "mma.sp". m8n8k4 of f16, four products in one, has none.
#pragma once

#include "ptx/elements.cuh"

namespace warptile {

// What a lane holds of A, of B, and of C, which is also the result: types and numbers of registers.
template <typename AB_, typename C_, int A_COUNT, int B_COUNT, int C_COUNT>
struct MmaRegisters {
    using AB = AB_;
    using C = C_;
    static constexpr int A_REGISTERS = A_COUNT, B_REGISTERS = B_COUNT, C_REGISTERS = C_COUNT;
};

// c += a * b, of FM x FK and FK x FN matrices (in elements) of a warp. ACCUMULATOR says how sums are kept: float,
// __half (two to a register), double, int, or for integers saturating_int. Bits are combined by AND, for xor_int by
// XOR.
template <typename ELEMENT, typename ACCUMULATOR, int FM, int FN, int FK>
struct Mma;

// The same with half of A left out: `metadata` says which half, of the lanes that SELECTOR selects.
template <typename ELEMENT, typename ACCUMULATOR, int FM, int FN, int FK, int SELECTOR>
struct SparseMma;

#if __CUDA_ARCH__ >= 750
template <>
struct Mma<__half, __half, 16, 8, 8> : MmaRegisters<unsigned, unsigned, 2, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 "
            "{%0, %1}, {%2, %3}, {%4}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<__half, float, 16, 8, 8> : MmaRegisters<unsigned, float, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<signed char, int, 8, 8, 16> : MmaRegisters<unsigned, int, 1, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 "
            "{%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(b[0]));
    }
};
template <>
struct Mma<signed char, saturating_int, 8, 8, 16> : MmaRegisters<unsigned, int, 1, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.s8.s32 "
            "{%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(b[0]));
    }
};
template <>
struct Mma<unsigned char, int, 8, 8, 16> : MmaRegisters<unsigned, int, 1, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 "
            "{%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(b[0]));
    }
};
template <>
struct Mma<unsigned char, saturating_int, 8, 8, 16> : MmaRegisters<unsigned, int, 1, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.u8.u8.s32 "
            "{%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(b[0]));
    }
};
template <>
struct Mma<int4_packed, int, 8, 8, 32> : MmaRegisters<unsigned, int, 1, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32 "
            "{%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(b[0]));
    }
};
template <>
struct Mma<int4_packed, saturating_int, 8, 8, 32> : MmaRegisters<unsigned, int, 1, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m8n8k32.row.col.satfinite.s32.s4.s4.s32 "
            "{%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(b[0]));
    }
};
template <>
struct Mma<uint4_packed, int, 8, 8, 32> : MmaRegisters<unsigned, int, 1, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m8n8k32.row.col.s32.u4.u4.s32 "
            "{%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(b[0]));
    }
};
template <>
struct Mma<uint4_packed, saturating_int, 8, 8, 32> : MmaRegisters<unsigned, int, 1, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m8n8k32.row.col.satfinite.s32.u4.u4.s32 "
            "{%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(b[0]));
    }
};
template <>
struct Mma<bit_packed, xor_int, 8, 8, 128> : MmaRegisters<unsigned, int, 1, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc "
            "{%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(b[0]));
    }
};
#endif

#if __CUDA_ARCH__ >= 800
template <>
struct Mma<__half, __half, 16, 8, 16> : MmaRegisters<unsigned, unsigned, 4, 2, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
            "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<__half, float, 16, 8, 16> : MmaRegisters<unsigned, float, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<__nv_bfloat16, float, 16, 8, 8> : MmaRegisters<unsigned, float, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<__nv_bfloat16, float, 16, 8, 16> : MmaRegisters<unsigned, float, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<float, float, 16, 8, 4> : MmaRegisters<unsigned, float, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<float, float, 16, 8, 8> : MmaRegisters<unsigned, float, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<double, double, 8, 8, 4> : MmaRegisters<double, double, 1, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 "
            "{%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(c[0]), "+d"(c[1])
            : "d"(a[0]), "d"(b[0]));
    }
};
template <>
struct Mma<signed char, int, 16, 8, 16> : MmaRegisters<unsigned, int, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<signed char, saturating_int, 16, 8, 16> : MmaRegisters<unsigned, int, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<unsigned char, int, 16, 8, 16> : MmaRegisters<unsigned, int, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<unsigned char, saturating_int, 16, 8, 16> : MmaRegisters<unsigned, int, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.satfinite.s32.u8.u8.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<signed char, int, 16, 8, 32> : MmaRegisters<unsigned, int, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<signed char, saturating_int, 16, 8, 32> : MmaRegisters<unsigned, int, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<unsigned char, int, 16, 8, 32> : MmaRegisters<unsigned, int, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<unsigned char, saturating_int, 16, 8, 32> : MmaRegisters<unsigned, int, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.u8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<int4_packed, int, 16, 8, 32> : MmaRegisters<unsigned, int, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<int4_packed, saturating_int, 16, 8, 32> : MmaRegisters<unsigned, int, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s4.s4.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<uint4_packed, int, 16, 8, 32> : MmaRegisters<unsigned, int, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u4.u4.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<uint4_packed, saturating_int, 16, 8, 32> : MmaRegisters<unsigned, int, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u4.u4.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<int4_packed, int, 16, 8, 64> : MmaRegisters<unsigned, int, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<int4_packed, saturating_int, 16, 8, 64> : MmaRegisters<unsigned, int, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.s4.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<uint4_packed, int, 16, 8, 64> : MmaRegisters<unsigned, int, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k64.row.col.s32.u4.u4.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<uint4_packed, saturating_int, 16, 8, 64> : MmaRegisters<unsigned, int, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k64.row.col.satfinite.s32.u4.u4.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<bit_packed, int, 8, 8, 128> : MmaRegisters<unsigned, int, 1, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc "
            "{%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(b[0]));
    }
};
template <>
struct Mma<bit_packed, xor_int, 16, 8, 128> : MmaRegisters<unsigned, int, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.xor.popc "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<bit_packed, int, 16, 8, 128> : MmaRegisters<unsigned, int, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<bit_packed, xor_int, 16, 8, 256> : MmaRegisters<unsigned, int, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<bit_packed, int, 16, 8, 256> : MmaRegisters<unsigned, int, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <int SELECTOR>
struct SparseMma<__half, __half, 16, 8, 16, SELECTOR> : MmaRegisters<unsigned, unsigned, 2, 2, 2> {
    static_assert(SELECTOR >= 0 && SELECTOR < 4, "selectors are below 4");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
            "{%0, %1}, {%2, %3}, {%4, %5}, {%0, %1}, %6, %7;"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(metadata), "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<__half, float, 16, 8, 16, SELECTOR> : MmaRegisters<unsigned, float, 2, 2, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 4, "selectors are below 4");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, %9;"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(metadata), "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<__half, __half, 16, 8, 32, SELECTOR> : MmaRegisters<unsigned, unsigned, 4, 4, 2> {
    static_assert(SELECTOR >= 0 && SELECTOR < 2, "selectors are below 2");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16 "
            "{%0, %1}, {%2, %3, %4, %5}, {%6, %7, %8, %9}, {%0, %1}, %10, %11;"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<__half, float, 16, 8, 32, SELECTOR> : MmaRegisters<unsigned, float, 4, 4, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 2, "selectors are below 2");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<__nv_bfloat16, float, 16, 8, 16, SELECTOR> : MmaRegisters<unsigned, float, 2, 2, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 4, "selectors are below 4");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, %9;"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(metadata), "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<__nv_bfloat16, float, 16, 8, 32, SELECTOR> : MmaRegisters<unsigned, float, 4, 4, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 2, "selectors are below 2");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<float, float, 16, 8, 8, SELECTOR> : MmaRegisters<unsigned, float, 2, 2, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 4, "selectors are below 4");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, %9;"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(metadata), "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<float, float, 16, 8, 16, SELECTOR> : MmaRegisters<unsigned, float, 4, 4, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 2, "selectors are below 2");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<signed char, int, 16, 8, 32, SELECTOR> : MmaRegisters<unsigned, int, 2, 2, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 2, "selectors are below 2");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, %9;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(metadata), "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<signed char, saturating_int, 16, 8, 32, SELECTOR> : MmaRegisters<unsigned, int, 2, 2, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 2, "selectors are below 2");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, %9;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(metadata), "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<unsigned char, int, 16, 8, 32, SELECTOR> : MmaRegisters<unsigned, int, 2, 2, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 2, "selectors are below 2");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, %9;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(metadata), "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<unsigned char, saturating_int, 16, 8, 32, SELECTOR> : MmaRegisters<unsigned, int, 2, 2, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 2, "selectors are below 2");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.u8.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, %9;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(metadata), "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<signed char, int, 16, 8, 64, SELECTOR> : MmaRegisters<unsigned, int, 4, 4, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 1, "selectors are below 1");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<signed char, saturating_int, 16, 8, 64, SELECTOR> : MmaRegisters<unsigned, int, 4, 4, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 1, "selectors are below 1");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.satfinite.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<unsigned char, int, 16, 8, 64, SELECTOR> : MmaRegisters<unsigned, int, 4, 4, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 1, "selectors are below 1");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.u8.u8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<unsigned char, saturating_int, 16, 8, 64, SELECTOR> : MmaRegisters<unsigned, int, 4, 4, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 1, "selectors are below 1");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.satfinite.s32.u8.u8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<int4_packed, int, 16, 8, 64, SELECTOR> : MmaRegisters<unsigned, int, 2, 2, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 2, "selectors are below 2");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, %9;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(metadata), "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<int4_packed, saturating_int, 16, 8, 64, SELECTOR> : MmaRegisters<unsigned, int, 2, 2, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 2, "selectors are below 2");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.s4.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, %9;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(metadata), "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<uint4_packed, int, 16, 8, 64, SELECTOR> : MmaRegisters<unsigned, int, 2, 2, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 2, "selectors are below 2");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.u4.u4.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, %9;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(metadata), "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<uint4_packed, saturating_int, 16, 8, 64, SELECTOR> : MmaRegisters<unsigned, int, 2, 2, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 2, "selectors are below 2");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.satfinite.s32.u4.u4.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3}, %8, %9;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(metadata), "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<int4_packed, int, 16, 8, 128, SELECTOR> : MmaRegisters<unsigned, int, 4, 4, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 1, "selectors are below 1");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<int4_packed, saturating_int, 16, 8, 128, SELECTOR> : MmaRegisters<unsigned, int, 4, 4, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 1, "selectors are below 1");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.satfinite.s32.s4.s4.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<uint4_packed, int, 16, 8, 128, SELECTOR> : MmaRegisters<unsigned, int, 4, 4, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 1, "selectors are below 1");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.u4.u4.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<uint4_packed, saturating_int, 16, 8, 128, SELECTOR> : MmaRegisters<unsigned, int, 4, 4, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 1, "selectors are below 1");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.satfinite.s32.u4.u4.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
#endif

#if __CUDA_ARCH__ >= 890
template <>
struct Mma<float8_e4m3, __half, 16, 8, 16> : MmaRegisters<unsigned, unsigned, 2, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e4m3.f16 "
            "{%0, %1}, {%2, %3}, {%4}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<float8_e4m3, float, 16, 8, 16> : MmaRegisters<unsigned, float, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<float8_e5m2, __half, 16, 8, 16> : MmaRegisters<unsigned, unsigned, 2, 1, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.f16.e5m2.e5m2.f16 "
            "{%0, %1}, {%2, %3}, {%4}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<float8_e5m2, float, 16, 8, 16> : MmaRegisters<unsigned, float, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.e5m2.e5m2.f32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    }
};
template <>
struct Mma<float8_e4m3, __half, 16, 8, 32> : MmaRegisters<unsigned, unsigned, 4, 2, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 "
            "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<float8_e4m3, float, 16, 8, 32> : MmaRegisters<unsigned, float, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<float8_e5m2, __half, 16, 8, 32> : MmaRegisters<unsigned, unsigned, 4, 2, 2> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e5m2.f16 "
            "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <>
struct Mma<float8_e5m2, float, 16, 8, 32> : MmaRegisters<unsigned, float, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
};
template <int SELECTOR>
struct SparseMma<float8_e4m3, float, 16, 8, 64, SELECTOR> : MmaRegisters<unsigned, float, 4, 4, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 1, "selectors are below 1");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
template <int SELECTOR>
struct SparseMma<float8_e5m2, float, 16, 8, 64, SELECTOR> : MmaRegisters<unsigned, float, 4, 4, 4> {
    static_assert(SELECTOR >= 0 && SELECTOR < 1, "selectors are below 1");
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b, unsigned metadata) {
        asm("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e5m2.e5m2.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(metadata),
              "n"(SELECTOR));
    }
};
#endif

#if __CUDA_ARCH__ >= 900
template <>
struct Mma<double, double, 16, 8, 4> : MmaRegisters<double, double, 2, 1, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
            : "d"(a[0]), "d"(a[1]), "d"(b[0]));
    }
};
template <>
struct Mma<double, double, 16, 8, 8> : MmaRegisters<double, double, 4, 2, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
            : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
    }
};
template <>
struct Mma<double, double, 16, 8, 16> : MmaRegisters<double, double, 8, 4, 4> {
    static __device__ __forceinline__ void mma_sync(C* c, const AB* a, const AB* b) {
        asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
            : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
            : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]),
              "d"(b[1]), "d"(b[2]), "d"(b[3]));
    }
};
#endif

}  // namespace warptile
