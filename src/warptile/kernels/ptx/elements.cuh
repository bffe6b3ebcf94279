// Element and accumulator types of tensor-core kernels, beyond those of C++ and of CUDA's headers.
#pragma once

// Named here, defined in cuda_fp16.h and cuda_bf16.h: a file that only names them need not include these slow headers.
struct __half;
struct __nv_bfloat16;

namespace warptile {

// Types narrower than a byte are stored packed, lowest bits first.
struct int4_packed {
    unsigned char pair;
};
struct uint4_packed {
    unsigned char pair;
};
struct bit_packed {
    unsigned char octet;
};

// Eight-bit floats: a sign, 4 or 5 bits of exponent, 3 or 2 of fraction. e4m3 has no infinity. From sm_89 on
// instructions convert them: numbers to the nearest one, at most the largest one (PTX ISA, "cvt", .satfinite; they
// convert two numbers, of which the second one becomes the lower byte), and back by way of f16, which has all of them.
struct float8_e4m3 {
    unsigned char bits;

    float8_e4m3() = default;
    __device__ __forceinline__ explicit float8_e4m3(float x) {
        unsigned short pair;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
        bits = static_cast<unsigned char>(pair);
    }
    __device__ __forceinline__ explicit operator float() const {
        unsigned halves;
        float number;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(bits)));
        asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(static_cast<unsigned short>(halves)));
        return number;
    }
    __device__ __forceinline__ explicit operator double() const { return static_cast<float>(*this); }
};
struct float8_e5m2 {
    unsigned char bits;

    float8_e5m2() = default;
    __device__ __forceinline__ explicit float8_e5m2(float x) {
        unsigned short pair;
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
        bits = static_cast<unsigned char>(pair);
    }
    __device__ __forceinline__ explicit operator float() const {
        unsigned halves;
        float number;
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(bits)));
        asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(static_cast<unsigned short>(halves)));
        return number;
    }
    __device__ __forceinline__ explicit operator double() const { return static_cast<float>(*this); }
};

// Accumulators that are int in memory and registers, and add differently.
struct saturating_int {};  // saturates at the ends of int's range instead of wrapping around
struct xor_int {};         // of bits: counts where A and B differ, not where both are one

// FP8 sums as wgmma accumulates them, with 13 fraction bits. With `float` they are promoted (two-level accumulation).
struct fast_float {};

}  // namespace warptile
