// The splitting pass: writes a float32 operand as two float16 slices, before the GEMM of `wgmma/split.cuh`.
//
// A line is a row of A or a column of B, along K. With a power of two 2^s that brings the largest magnitude of a line
// into [2^12, 2^13), an element x becomes
//
//     high = RN16(2^s x)        low = RN16(2^11 (2^s x - high))        x = 2^-s (high + 2^-11 low)
//
// where RN16 rounds to the nearest float16. What is lost of x is at most 2^-23 |x|, or 2^-36 2^-s where low is
// subnormal. A line that this does not suit (`suits`) is marked; the GEMM then computes what it touches in float32.
//
// Not in namespace warptile: profiling commands select the GEMM kernels by that name.
#pragma once

#include <cuda_fp16.h>

#include "ptx/cluster.cuh"
#include "tile/split_scale.cuh"

namespace operand_split {

using warptile::CANNOT_SPLIT;

constexpr int THREADS = 256, WARPS = THREADS / 32, WIDTH = 4;

// One operand, as `Split` of warptile/rungs/operand_split.py describes it; strides in elements.
struct Operand {
    const float* source;
    __half* high;
    int* exponents;
    long long lines;
    int k;
    long long line_stride, k_stride, target_stride;
    int along;  // threads for a line that is contiguous: 32 or THREADS

    __device__ __forceinline__ __half* low() const { return high + lines * target_stride; }
};

// The largest magnitude and the smallest one that is not zero, as the bits of floats: these compare as integers.
struct Range {
    unsigned largest = 0, smallest = 0xffffffff;

    __device__ __forceinline__ void include(float x) {
        const unsigned magnitude = __float_as_uint(x) & 0x7fffffff;
        largest = max(largest, magnitude);
        if (magnitude != 0) smallest = min(smallest, magnitude);
    }
    __device__ __forceinline__ void include(const Range& other) {
        largest = max(largest, other.largest);
        smallest = min(smallest, other.smallest);
    }
    __device__ __forceinline__ void reduce_over_warp() {
        largest = __reduce_max_sync(0xffffffff, largest);
        smallest = __reduce_min_sync(0xffffffff, smallest);
    }

    // s, or CANNOT_SPLIT. Of a float32 dot product of length K the error is up to K 2^-24 times the sum of the
    // products' magnitudes. A line suits if what splitting loses of any of its elements is at most an eighth of that:
    // 2^-36 <= K 2^-27 2^s |x|. Infinities, NaN and scales beyond float32 do not suit.
    __device__ __forceinline__ int exponent(int k) const {
        const int biased = static_cast<int>(largest >> 23);
        if (largest == 0) return 0;
        const int s = 12 + 127 - biased;
        if (biased >= 255 || s > warptile::MOST_SPLIT_EXPONENT) return CANNOT_SPLIT;
        const float scaled = __uint_as_float(smallest) * warptile::power_of_two(s);
        return scaled * static_cast<float>(k) >= 0x1p-9f ? s : CANNOT_SPLIT;
    }
};

struct Slices {
    __half high, low;
};

// The slices of x, whose line is scaled by `scale` = 2^s.
__device__ __forceinline__ Slices split(float x, float scale) {
    const float scaled = x * scale;
    const __half high = __float2half_rn(scaled);
    return {high, __float2half_rn((scaled - __half2float(high)) * 0x1p11f)};
}

// As `split`, or zeros where the line cannot be split and `scale` is zero.
__device__ __forceinline__ Slices split_or_zero(float x, float scale) {
    return scale == 0.0f ? Slices{} : split(x, scale);
}

// Lines along K are contiguous: `along` threads for each, four neighbouring elements at a time. ALIGNED: these are
// loaded as one vector.
template <bool ALIGNED>
struct ByLines {
    static __device__ __forceinline__ void load(float (&x)[WIDTH], const float* from, int count) {
        if (ALIGNED && count >= WIDTH) {
            const float4 vector = *reinterpret_cast<const float4*>(from);
            x[0] = vector.x, x[1] = vector.y, x[2] = vector.z, x[3] = vector.w;
        } else {
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) x[i] = i < count ? from[i] : 0.0f;
        }
    }

    static __device__ __forceinline__ void store(__half* to, const __half (&slice)[WIDTH], int count) {
        if (count >= WIDTH) {
            *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(slice);
        } else {
#pragma unroll
            for (int i = 0; i < WIDTH; ++i)
                if (i < count) to[i] = slice[i];
        }
    }

    static __device__ __forceinline__ void move(const Operand& operand, int block) {
        __shared__ Range ranges[WARPS];
        const int lines = THREADS / operand.along, thread = threadIdx.x % operand.along, warp = threadIdx.x / 32;
        const long long line = static_cast<long long>(block) * lines + threadIdx.x / operand.along;
        const bool inside = line < operand.lines;
        const float* const from = operand.source + (inside ? line : 0) * operand.line_stride;
        const int k = inside ? operand.k : 0, step = operand.along * WIDTH;

        Range range;
        float x[WIDTH];
#pragma unroll 4
        for (int at = thread * WIDTH; at < k; at += step) {
            load(x, from + at, k - at);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) range.include(x[i]);
        }
        range.reduce_over_warp();
        if (operand.along > 32) {
            if (threadIdx.x % 32 == 0) ranges[warp] = range;
            __syncthreads();
#pragma unroll
            for (int i = 0; i < WARPS; ++i) range.include(ranges[i]);
        }
        const int s = range.exponent(operand.k);
        if (inside && thread == 0) operand.exponents[line] = s;
        const float scale = s == CANNOT_SPLIT ? 0.0f : warptile::power_of_two(s);

        __half* const high = operand.high + line * operand.target_stride;
        __half* const low = operand.low() + line * operand.target_stride;
#pragma unroll 4
        for (int at = thread * WIDTH; at < k; at += step) {
            alignas(8) __half highs[WIDTH], lows[WIDTH];
            load(x, from + at, k - at);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) {
                const Slices found = split_or_zero(x[i], scale);
                highs[i] = found.high, lows[i] = found.low;
            }
            store(high + at, highs, k - at);
            store(low + at, lows, k - at);
        }
    }
};

// Neighbouring elements are of neighbouring lines: a lane takes one of 32 lines, and the CTAs of a cluster take parts
// of K, as 32 lines alone would keep few loads under way. Each finds the ranges of its parts, the cluster exchanges
// them, and blocks of 64 along K are transposed through shared memory.
struct Across {
    static constexpr int LINES = 32, BLOCK = 64, PITCH = BLOCK + 2;  // in elements: rows begin in banks 33 apart
    static constexpr int OF_WARP = BLOCK / WARPS;

    static __device__ __forceinline__ void move(const Operand& operand, int block) {
        __shared__ Range ranges[WARPS][LINES];
        __shared__ alignas(8) Range of_part[LINES];
        __shared__ alignas(16) __half slices[2][LINES][PITCH];
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k = operand.k;
        const int parts = warptile::cluster_nctarank(), part = warptile::cluster_ctarank();
        const long long first = static_cast<long long>(block / parts) * LINES, line = first + lane;
        const bool inside = line < operand.lines;
        const float* const from = operand.source + (inside ? line : 0) * operand.line_stride;
        const int extent = ((k + BLOCK - 1) / BLOCK + parts - 1) / parts * BLOCK;
        const int begin = min(part * extent, k), end = min(begin + extent, k);

        Range range;
#pragma unroll 8
        for (int at = begin + warp; at < end; at += WARPS) range.include(from[at * operand.k_stride]);
        ranges[warp][lane] = range;
        __syncthreads();
        if (warp == 0) {
#pragma unroll
            for (int i = 1; i < WARPS; ++i) range.include(ranges[i][lane]);
            of_part[lane] = range;
        }
        warptile::cluster_sync();
        if (warp < parts) {
            const unsigned here = warptile::shared_address(&of_part[lane]);
            const auto found = warptile::ld_shared_cluster<8>(warptile::mapa(here, warp));
            ranges[warp][lane] = {found.bits.x, found.bits.y};
        }
        __syncthreads();
        warptile::barrier_cluster_arrive();  // no CTA ends before all have read its ranges
        range = ranges[0][lane];
        for (int i = 1; i < parts; ++i) range.include(ranges[i][lane]);
        const int s = range.exponent(k);
        if (inside && warp == 0 && part == 0) operand.exponents[line] = s;
        const float scale = s == CANNOT_SPLIT ? 0.0f : warptile::power_of_two(s);

        for (int block_k = begin; block_k < end; block_k += BLOCK) {
            float x[OF_WARP];
#pragma unroll
            for (int i = 0; i < OF_WARP; ++i) {
                const int at = block_k + warp * OF_WARP + i;
                x[i] = at < end ? from[at * operand.k_stride] : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < OF_WARP; i += 2) {
                const Slices one = split_or_zero(x[i], scale), two = split_or_zero(x[i + 1], scale);
                const int at = warp * OF_WARP + i;
                *reinterpret_cast<__half2*>(&slices[0][lane][at]) = {one.high, two.high};
                *reinterpret_cast<__half2*>(&slices[1][lane][at]) = {one.low, two.low};
            }
            __syncthreads();
            // A warp writes four lines of both slices, two neighbouring elements a lane.
            const int at = block_k + 2 * lane;
#pragma unroll
            for (int i = 0; i < LINES / WARPS; ++i) {
                const int row = warp * (LINES / WARPS) + i;
                if (first + row >= operand.lines) continue;
#pragma unroll
                for (int slice = 0; slice < 2; ++slice) {
                    __half* const to =
                        (slice == 0 ? operand.high : operand.low()) + (first + row) * operand.target_stride + at;
                    if (at + 1 < end) {
                        *reinterpret_cast<unsigned*>(to) =
                            *reinterpret_cast<const unsigned*>(&slices[slice][row][2 * lane]);
                    } else if (at < end) {
                        *to = slices[slice][row][2 * lane];
                    }
                }
            }
            __syncthreads();
        }
        warptile::barrier_cluster_wait();
    }
};

template <typename WAY>
__global__ void __launch_bounds__(THREADS)
    split_one(const float* source, __half* high, int* exponents, long long lines, int k, long long line_stride,
              long long k_stride, long long target_stride, int along) {
    WAY::move({source, high, exponents, lines, k, line_stride, k_stride, target_stride, along}, blockIdx.x);
}

// Two operands in one launch; the first has `blocks` CTAs.
template <typename FIRST, typename SECOND>
__global__ void __launch_bounds__(THREADS)
    split_two(const float* source, __half* high, int* exponents, long long lines, int k, long long line_stride,
              long long k_stride, long long target_stride, int along, const float* source2, __half* high2,
              int* exponents2, long long lines2, int k2, long long line_stride2, long long k_stride2,
              long long target_stride2, int along2, int blocks) {
    const int block = blockIdx.x;
    if (block < blocks) {
        FIRST::move({source, high, exponents, lines, k, line_stride, k_stride, target_stride, along}, block);
    } else {
        SECOND::move({source2, high2, exponents2, lines2, k2, line_stride2, k_stride2, target_stride2, along2},
                     block - blocks);
    }
}

}  // namespace operand_split
