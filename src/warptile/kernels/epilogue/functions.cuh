// The functions that an epilogue expression may use, of float and of double (warptile/epilogue/operations.py).
#pragma once

#include "ptx/elements.cuh"
#include "tile/traits.cuh"

namespace warptile {

// Sums, differences and products that the compiler does not fuse with other operations.
__device__ __forceinline__ float rounded_sum(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double rounded_sum(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float rounded_difference(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ double rounded_difference(double a, double b) { return __dsub_rn(a, b); }
__device__ __forceinline__ float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double rounded_product(double a, double b) { return __dmul_rn(a, b); }

// NaN where an argument is NaN, as NumPy's minimum and maximum.
template <typename NUMBER>
__device__ __forceinline__ NUMBER smaller(NUMBER a, NUMBER b) {
    return a < b || a != a ? a : b;
}
template <typename NUMBER>
__device__ __forceinline__ NUMBER larger(NUMBER a, NUMBER b) {
    return a > b || a != a ? a : b;
}
template <typename NUMBER>
__device__ __forceinline__ NUMBER relu(NUMBER x) {
    return x < NUMBER(0) ? NUMBER(0) : x;
}

__device__ __forceinline__ float absolute(float x) { return fabsf(x); }
__device__ __forceinline__ double absolute(double x) { return fabs(x); }
__device__ __forceinline__ float square_root(float x) { return __fsqrt_rn(x); }
__device__ __forceinline__ double square_root(double x) { return __dsqrt_rn(x); }
__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }
__device__ __forceinline__ float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ __forceinline__ double hyperbolic_tangent(double x) { return tanh(x); }
__device__ __forceinline__ float error_function(float x) { return erff(x); }
__device__ __forceinline__ double error_function(double x) { return erf(x); }

// 2^x, with a relative error of 2^-22 (PTX ISA, "ex2").
__device__ __forceinline__ float exp2_approximate(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// 1 / x, with an error of one unit in the last place (PTX ISA, "rcp").
__device__ __forceinline__ float reciprocal_approximate(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// 1 / (1 + e^-x): two instructions of the special function unit. Of x beyond -88 the exponential is infinite, and the
// result 0.
__device__ __forceinline__ float sigmoid(float x) {
    return reciprocal_approximate(1.0f + exp2_approximate(x * -1.44269504f));
}
__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

// x * factor, where the factor is zero (or NaN) if x is below -1e4; zero even if x is -infinity.
__device__ __forceinline__ float weighted(float x, float factor) { return fmaxf(x, -1e4f) * factor; }
__device__ __forceinline__ double weighted(double x, double factor) { return fmax(x, -1e4) * factor; }

template <typename NUMBER>
__device__ __forceinline__ NUMBER silu(NUMBER x) {
    return weighted(x, sigmoid(x));
}

// x times the cumulative distribution function of the normal distribution, erfc(-x / sqrt(2)) / 2: for all x it is
// max(x, 0) - |x| erfc(|x| / sqrt(2)) / 2.
//
// erfc(z) / 2 = t P(t) e^(-z z), t = 1 / (1 + p z), for z >= 0: the form of Abramowitz and Stegun, Handbook of
// Mathematical Functions, 7.1.26, with p and polynomials fitted for the least relative error on [0, 9.3]. One formula
// for all x keeps warps together; erff takes one of two branches, and 1 + erf(x) has no correct digit for x below -6.
// `coefficients` are those of P, the highest first.
template <int COUNT>
__device__ __forceinline__ float gelu_by(const float (&coefficients)[COUNT], float p, float x) {
    const float y = x * 0.849321800f;  // z = |x| / sqrt(2), and e^(-z z) = 2^(-y y)
    const float t = reciprocal_approximate(fmaf(p * 0.832554611f, fabsf(y), 1.0f));
    float polynomial = coefficients[0];
#pragma unroll
    for (int i = 1; i < COUNT; ++i) polynomial = fmaf(polynomial, t, coefficients[i]);
    // Beyond 1e4 the factor is 0, and 0 times infinity would be NaN.
    return fmaf(-fminf(fabsf(x), 1e4f), polynomial * t * exp2_approximate(-y * y), fmaxf(x, 0.0f));
}

// With a relative error of 1.0e-7, and 4e-7 when evaluated in float32.
__device__ __forceinline__ float gelu(float x) {
    return gelu_by({-0.07103855907917023f, 0.2503340542316437f, -0.20640872418880463f, 0.22983905673027039f,
                    0.010981938801705837f, 0.10348454117774963f, 0.0902751162648201f, 0.09253264218568802f},
                   0.3275911f, x);
}

// With a relative error of 3.9e-5: for results of 16 bits, whose rounding is 2^-9 or 2^-12.
__device__ __forceinline__ float gelu_for_16_bits(float x) {
    return gelu_by(
        {-0.08939994126558304f, 0.18426169455051422f, 0.095267154276371f, 0.1578305959701538f, 0.15202105045318604f},
        0.54f, x);
}
__device__ __forceinline__ double gelu(double x) { return weighted(x, 0.5 * erfc(x * -0.70710678118654752440)); }

// 0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3), which is x / (1 + e^(-2 u)); e^(-2 u) is
// 2^(x (p + q x^2)) with p = -2 sqrt(2 / pi) / ln(2) and q = 0.044715 p.
__device__ __forceinline__ float gelu_tanh(float x) {
    return weighted(x, reciprocal_approximate(1.0f + exp2_approximate(x * fmaf(-0.102943240f, x * x, -2.30220819f))));
}
__device__ __forceinline__ double gelu_tanh(double x) {
    return weighted(x, sigmoid(1.59576912160573071176 * x * (1.0 + 0.044715 * x * x)));
}

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): word `column % 4` of the block
// with the counter (column / 4, row, 0, 0), as a number in [0, 1) with 24 bits.
__device__ __forceinline__ float philox_uniform(unsigned long long seed, unsigned row, unsigned column) {
    unsigned counter[4] = {column / 4, row, 0, 0};
    unsigned key[2] = {static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32)};
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned high0 = __umulhi(0xD2511F53u, counter[0]), low0 = 0xD2511F53u * counter[0];
        const unsigned high1 = __umulhi(0xCD9E8D57u, counter[2]), low1 = 0xCD9E8D57u * counter[2];
        counter[0] = high1 ^ counter[1] ^ key[0];
        counter[1] = low1;
        counter[2] = high0 ^ counter[3] ^ key[1];
        counter[3] = low0;
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    const unsigned word = column & 2 ? (column & 1 ? counter[3] : counter[2]) : (column & 1 ? counter[1] : counter[0]);
    return (word >> 8) * 0x1p-24f;
}

}  // namespace warptile
