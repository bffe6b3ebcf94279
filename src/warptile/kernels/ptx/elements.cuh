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

// Eight-bit floats: a sign, 4 or 5 bits of exponent, 3 or 2 of fraction. e4m3 has no infinity.
struct float8_e4m3 {
    unsigned char bits;
};
struct float8_e5m2 {
    unsigned char bits;
};

// Accumulators that are int in memory and registers, and add differently.
struct saturating_int {};  // saturates at the ends of int's range instead of wrapping around
struct xor_int {};         // of bits: counts where A and B differ, not where both are one

// FP8 sums as wgmma accumulates them, with 13 fraction bits. With `float` they are promoted (two-level accumulation).
struct fast_float {};

}  // namespace warptile
