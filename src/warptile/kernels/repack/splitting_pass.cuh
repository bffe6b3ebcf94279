// The splitting pass: writes a float32 operand as two float16 slices, before the GEMM of `wgmma/split.cuh`.
//
// A line is a row of A or a column of B, along K. With a power of two 2^s that brings the largest magnitude of a line
// into [2^12, 2^13), an element x becomes
//
//     high = RN16(2^s x)        low = RN16(2^11 (2^s x - high))        x = 2^-s (high + 2^-11 low)
//
// where RN16 rounds to the nearest float16. What is lost of x is at most 2^-23 |x|, or 2^-36 2^-s where low is
// subnormal. A line that this does not suit (`Range::exponent`) is marked; the GEMM then computes what it touches in
// float32.
//
// Not in namespace warptile: profiling commands select the GEMM kernels by that name.
#pragma once

#include <cuda_fp16.h>

#include "ptx/cluster.cuh"
#include "ptx/griddepcontrol.cuh"
#include "tile/split_scale.cuh"

namespace operand_split {

using warptile::CANNOT_SPLIT;

constexpr int THREADS = 256, WARPS = THREADS / 32, WIDTH = 4;

// One operand, as `Split` of warptile/rungs/operand_split.py describes it; strides in elements. Lines of a batch are
// numbered one after the other, `lines` in each of `matrices`.
struct Operand {
    const float* source;
    __half* high;
    int* exponents;
    unsigned lines, matrices;
    int k;
    long long line_stride, k_stride, matrix_stride, target_stride;
    int shared_by;  // threads that share a line that is contiguous; else CTAs

    __device__ __forceinline__ __half* low() const {
        return high + static_cast<long long>(matrices * lines) * target_stride;
    }
};

// The largest magnitude, NaN if there is one, and the smallest one that is not zero. `least` is twice the bits of the
// latter without its sign, less one: that makes zero the largest of all.
struct Range {
    float largest = 0;
    unsigned least = 0xffffffff;

    __device__ __forceinline__ void include(float x) {
        largest = max_or_nan(largest, x);
        least = min(least, 2 * __float_as_uint(x) - 1);
    }
    __device__ __forceinline__ void include(const Range& other) {
        largest = max_or_nan(largest, other.largest);
        least = min(least, other.least);
    }
    __device__ __forceinline__ Range of_lane(int apart) const {
        return {__shfl_xor_sync(0xffffffff, largest, apart), __shfl_xor_sync(0xffffffff, least, apart)};
    }
    __device__ __forceinline__ void reduce_over_warp() {
        // Without their sign floats compare as integers.
        largest = __uint_as_float(__reduce_max_sync(0xffffffff, __float_as_uint(largest) & 0x7fffffff));
        least = __reduce_min_sync(0xffffffff, least);
    }

    static __device__ __forceinline__ float max_or_nan(float a, float b) {
        float larger;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(fabsf(a)), "f"(fabsf(b)));
        return larger;
    }

    // s, or CANNOT_SPLIT. Of a float32 dot product of length K the error is up to K 2^-24 times the sum of the
    // products' magnitudes. A line suits if what splitting loses of any of its elements is at most an eighth of that:
    // 2^-36 <= K 2^-27 2^s |x|. Infinities, NaN and scales beyond float32 do not suit.
    __device__ __forceinline__ int exponent(int k) const {
        const int biased = static_cast<int>(__float_as_uint(largest) >> 23 & 0xff);
        if (largest == 0) return 0;
        const int s = 12 + 127 - biased;
        if (biased >= 255 || s > warptile::MOST_SPLIT_EXPONENT) return CANNOT_SPLIT;
        const float scaled = __uint_as_float((least + 1) / 2) * warptile::power_of_two(s);
        return scaled * static_cast<float>(k) >= 0x1p-9f ? s : CANNOT_SPLIT;
    }
};

// Both slices of two elements.
struct Slices {
    __half2 high, low;
};

// The slices of x and y, whose line is scaled by `scale` = 2^s. Both are zero where the line cannot be split, for which
// `scale` is zero.
__device__ __forceinline__ Slices split(float x, float y, float scale) {
    const __half2 high = __floats2half2_rn(x * scale, y * scale);
    const float2 back = __half22float2(high);
    // Exact: what is left of the scaled x has no more bits than x. Scales times 2^11 might overflow.
    return {high, __floats2half2_rn(__fmaf_rn(x, scale, -back.x) * 0x1p11f, __fmaf_rn(y, scale, -back.y) * 0x1p11f)};
}

// Of a power of two.
__device__ __forceinline__ int log2_of(int x) { return __ffs(x) - 1; }

__device__ __forceinline__ float scale_of(int s) { return s == CANNOT_SPLIT ? 0.0f : warptile::power_of_two(s); }

// Loads `count` neighbouring elements, WIDTH at most, and zeros for the rest. ALIGNED: WIDTH are loaded as one vector.
template <bool ALIGNED>
__device__ __forceinline__ void load(float (&x)[WIDTH], const float* from, int count) {
    if (ALIGNED && count >= WIDTH) {
        const float4 vector = *reinterpret_cast<const float4*>(from);
        x[0] = vector.x, x[1] = vector.y, x[2] = vector.z, x[3] = vector.w;
    } else if (count >= WIDTH) {
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) x[i] = from[i];
    } else {
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) x[i] = i < count ? from[i] : 0.0f;
    }
}

__device__ __forceinline__ uint2 bits_of(__half2 first, __half2 second) {
    return {*reinterpret_cast<const unsigned*>(&first), *reinterpret_cast<const unsigned*>(&second)};
}

// Stores `count` neighbouring elements of a slice, WIDTH at most.
__device__ __forceinline__ void store(__half* to, uint2 slice, int count) {
    if (count >= WIDTH) {
        *reinterpret_cast<uint2*>(to) = slice;
    } else {
        const __half* const elements = reinterpret_cast<const __half*>(&slice);
#pragma unroll
        for (int i = 0; i < WIDTH; ++i)
            if (i < count) to[i] = elements[i];
    }
}

// What CTA `rank` of this cluster has at the address of `here` in its shared memory.
__device__ __forceinline__ Range range_of(const Range& here, int rank) {
    const auto found = warptile::ld_shared_cluster<8>(warptile::mapa(warptile::shared_address(&here), rank));
    return {__uint_as_float(found.bits.x), found.bits.y};
}

// Lines along K are contiguous: `shared_by` threads for each, a power of two from 8 on, with four neighbouring elements
// at a time. Of these a thread keeps HELD in registers from finding the range to splitting, which is a whole line
// unless that is long; the rest is read twice. Few long lines would keep few loads under way: the CTAs of a cluster
// share each. ALIGNED: neighbouring elements are loaded as one vector.
template <bool ALIGNED>
struct ByLines {
    static constexpr int HELD = 4;

    // The range of what the `threads` threads of a line in this CTA have found.
    static __device__ __forceinline__ void reduce(Range& range, Range (&ranges)[WARPS], int threads) {
        if (threads < 32) {
            for (int apart = 1; apart < threads; apart *= 2) range.include(range.of_lane(apart));
            return;
        }
        range.reduce_over_warp();
        if (threads == 32) return;
        const int warp = threadIdx.x / 32, warps = threads / 32;
        if (threadIdx.x % 32 == 0) ranges[warp] = range;
        __syncthreads();
        for (int i = 1; i < warps; ++i) range.include(ranges[warp ^ i]);
    }

    static __device__ __forceinline__ void move(const Operand& operand, int block) {
        __shared__ Range ranges[WARPS];
        __shared__ alignas(8) Range of_part;
        // Powers of two, as `shared_by` is.
        const int parts = max(operand.shared_by / THREADS, 1), threads = min(operand.shared_by, THREADS);
        const int rank = warptile::cluster_ctarank(), part = rank & (parts - 1), warp = threadIdx.x / 32;
        const int thread = part * THREADS + (threadIdx.x & (threads - 1));
        const long long number = static_cast<long long>(block) * THREADS + threadIdx.x;
        const unsigned line = static_cast<unsigned>(number >> log2_of(operand.shared_by));
        const bool inside = line < operand.matrices * operand.lines;
        const float* from = operand.source;
        if (inside && operand.matrices > 1) {
            from += line / operand.lines * operand.matrix_stride + line % operand.lines * operand.line_stride;
        } else if (inside) {
            from += line * operand.line_stride;
        }
        const int k = inside ? operand.k : 0, first = thread * WIDTH, step = operand.shared_by * WIDTH;

        float held[HELD][WIDTH], x[WIDTH];
#pragma unroll
        for (int i = 0; i < HELD; ++i) load<ALIGNED>(held[i], from + (first + i * step), k - (first + i * step));
        Range range;
#pragma unroll
        for (int i = 0; i < HELD; ++i)
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) range.include(held[i][j]);
#pragma unroll 4
        for (int at = first + HELD * step; at < k; at += step) {
            load<ALIGNED>(x, from + at, k - at);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i) range.include(x[i]);
        }
        reduce(range, ranges, threads);
        if (parts > 1) {
            if (threadIdx.x == 0) of_part = range;
            warptile::cluster_sync();
            if (warp < parts && threadIdx.x % 32 == 0) ranges[warp] = range_of(of_part, rank - part + warp);
            __syncthreads();
            warptile::barrier_cluster_arrive();  // no CTA ends before all have read its range
            for (int i = 0; i < parts; ++i) range.include(ranges[i]);
        }
        const int s = range.exponent(operand.k);
        if (inside && thread == 0) operand.exponents[line] = s;
        const float scale = scale_of(s);

        __half* const high = operand.high + line * operand.target_stride;
        const long long low = operand.low() - operand.high;
        if (scale == 0)
#pragma unroll
            for (int i = 0; i < HELD; ++i)
#pragma unroll
                for (int j = 0; j < WIDTH; ++j) held[i][j] = 0;
        const auto write = [&](const float (&elements)[WIDTH], int at) {
            const Slices one = split(elements[0], elements[1], scale);
            const Slices two = split(elements[2], elements[3], scale);
            store(high + at, bits_of(one.high, two.high), k - at);
            store(high + low + at, bits_of(one.low, two.low), k - at);
        };
#pragma unroll
        for (int i = 0; i < HELD; ++i)
            if (first + i * step < k) write(held[i], first + i * step);
#pragma unroll 4
        for (int at = first + HELD * step; at < k; at += step) {
            load<ALIGNED>(x, from + at, scale == 0 ? 0 : k - at);
            write(x, at);
        }
        if (parts > 1) warptile::barrier_cluster_wait();
    }
};

// Neighbouring elements are of neighbouring lines: a CTA takes 32 lines, a lane four of them, and the CTAs of a cluster
// take parts of K, as 32 lines alone would keep few loads under way. Each finds the ranges of its parts, the cluster
// exchanges them, and blocks of 64 along K are transposed through shared memory. ALIGNED: a lane's four elements are
// loaded as one vector. A part of at most HELD along K stays in registers; a longer one is read twice.
template <bool ALIGNED>
struct Across {
    static constexpr unsigned LINES = 32;
    static constexpr int BLOCK = 64, PITCH = BLOCK + WIDTH;
    static constexpr int QUADS = LINES / WIDTH, ROWS = 2 * 32 / QUADS;  // lanes across lines; a warp's extent along K
    static constexpr int BLOCKS = 4;  // that are loaded at a time: an even number, as there are two buffers
    static constexpr int HELD = BLOCKS * BLOCK;
    static_assert(WARPS * ROWS == BLOCK, "a lane has two neighbours along K");

    // Loads a lane's elements at two neighbours along K in each of BLOCKS blocks, and zeros from `left` along K on and
    // for all but `count` lines. Nothing is in the way of vectors, so that all of them are under way together.
    static __device__ __forceinline__ void load_blocks(float (&x)[2 * BLOCKS][WIDTH], const float* from,
                                                       long long k_stride, int left, int count) {
        const bool in_vectors = ALIGNED && count == WIDTH;
        const long long block_stride = BLOCK * k_stride;
#pragma unroll
        for (int i = 0; i < 2 * BLOCKS; ++i) {
            const float* const row = from + i / 2 * block_stride + i % 2 * k_stride;
            const bool inside = i / 2 * BLOCK + i % 2 < left;
            float4 vector{};
            if (in_vectors && inside) vector = *reinterpret_cast<const float4*>(row);
            x[i][0] = vector.x, x[i][1] = vector.y, x[i][2] = vector.z, x[i][3] = vector.w;
        }
        if (in_vectors) return;
#pragma unroll
        for (int i = 0; i < 2 * BLOCKS; ++i) {
            const float* const row = from + i / 2 * block_stride + i % 2 * k_stride;
#pragma unroll
            for (int j = 0; j < WIDTH; ++j)
                if (j < count && i / 2 * BLOCK + i % 2 < left) x[i][j] = row[j];
        }
    }

    static __device__ __forceinline__ void move(const Operand& operand, int block) {
        __shared__ Range ranges[WARPS][LINES];
        __shared__ alignas(8) Range of_part[LINES];
        __shared__ float scales[LINES];
        __shared__ alignas(8) __half slices[2][2][LINES][PITCH];
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k = operand.k;
        const int parts = operand.shared_by, rank = warptile::cluster_ctarank(), part = rank & (parts - 1);
        unsigned matrix = 0, first_of_matrix = block >> log2_of(parts);
        if (operand.matrices > 1) {
            const unsigned blocks = (operand.lines + LINES - 1) / LINES;
            matrix = first_of_matrix / blocks, first_of_matrix %= blocks;
        }
        first_of_matrix *= LINES;
        // The last CTAs of an operand may have no lines.
        const bool inside = matrix < operand.matrices && first_of_matrix < operand.lines;
        const int lines = inside ? min(operand.lines - first_of_matrix, LINES) : 0;
        const long long first = matrix * operand.lines + first_of_matrix;
        const int extent = ((k + BLOCK - 1) / BLOCK + parts - 1) / parts * BLOCK;
        const int begin = min(part * extent, k), end = min(begin + extent, k);

        // This lane's first line and first neighbour along K, among those of the CTA and of a block.
        const int line = lane % QUADS * WIDTH, own = warp * ROWS + lane / QUADS * 2;
        const int count = min(max(lines - line, 0), WIDTH);
        const float* const source = operand.source +
                                    (count > 0 ? matrix * operand.matrix_stride + first_of_matrix + line : 0) +
                                    static_cast<long long>(begin + own) * operand.k_stride;
        const long long step = HELD * operand.k_stride;
        float x[2 * BLOCKS][WIDTH];

        Range found[WIDTH];
        const float* from = source;
        for (int first_k = begin; first_k < end; first_k += HELD, from += step) {
            load_blocks(x, from, operand.k_stride, end - first_k - own, count);
#pragma unroll
            for (int i = 0; i < 2 * BLOCKS; ++i)
                if (i / 2 * BLOCK < end - first_k)
#pragma unroll
                    for (int j = 0; j < WIDTH; ++j) found[j].include(x[i][j]);
        }
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
#pragma unroll
            for (int apart = QUADS; apart < 32; apart *= 2) found[j].include(found[j].of_lane(apart));
            if (lane < QUADS) ranges[warp][line + j] = found[j];
        }
        __syncthreads();
        if (warp == 0) {
            Range range = ranges[0][lane];
#pragma unroll
            for (int i = 1; i < WARPS; ++i) range.include(ranges[i][lane]);
            of_part[lane] = range;
        }
        warptile::cluster_sync();
        if (warp < parts) ranges[warp][lane] = range_of(of_part[lane], rank - part + warp);
        __syncthreads();
        warptile::barrier_cluster_arrive();  // no CTA ends before all have read its ranges
        if (warp == 0) {
            Range range = ranges[0][lane];
            for (int i = 1; i < parts; ++i) range.include(ranges[i][lane]);
            const int s = range.exponent(k);
            if (lane < lines && part == 0) operand.exponents[first + lane] = s;
            scales[lane] = scale_of(s);
        }
        __syncthreads();
        float scale[WIDTH];
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) scale[j] = scales[line + j];

        // A warp writes four lines of both slices of a block, two lines at a time, four neighbouring elements a lane.
        const int written = warp * (LINES / WARPS) + lane / (BLOCK / WIDTH), along = lane % (BLOCK / WIDTH) * WIDTH;
        __half* to = operand.high + (first + written) * operand.target_stride + begin + along;
        const long long next_lines = 2 * operand.target_stride, low = operand.low() - operand.high;
        from = source;
        for (int first_k = begin; first_k < end; first_k += HELD, from += step) {
            if (end - begin > HELD) load_blocks(x, from, operand.k_stride, end - first_k - own, count);
#pragma unroll
            for (int j = 0; j < WIDTH; ++j)
                if (scale[j] == 0)
#pragma unroll
                    for (int i = 0; i < 2 * BLOCKS; ++i) x[i][j] = 0;
#pragma unroll
            for (int number = 0; number < BLOCKS; ++number, to += BLOCK) {
                const int left = end - first_k - number * BLOCK;
                if (left <= 0) break;
                auto& of_block = slices[number % 2];
#pragma unroll
                for (int j = 0; j < WIDTH; ++j) {
                    const Slices both = split(x[2 * number][j], x[2 * number + 1][j], scale[j]);
                    *reinterpret_cast<__half2*>(&of_block[0][line + j][own]) = both.high;
                    *reinterpret_cast<__half2*>(&of_block[1][line + j][own]) = both.low;
                }
                // One barrier for a block: who writes the other buffer has finished reading it before this one.
                __syncthreads();
#pragma unroll
                for (int i = 0; i < LINES / WARPS; i += 2) {
                    if (written + i >= lines) continue;
                    __half* const high = to + i / 2 * next_lines;
                    store(high, *reinterpret_cast<const uint2*>(&of_block[0][written + i][along]), left - along);
                    store(high + low, *reinterpret_cast<const uint2*>(&of_block[1][written + i][along]), left - along);
                }
            }
        }
        warptile::barrier_cluster_wait();
    }
};

template <typename WAY>
__global__ void __launch_bounds__(THREADS)
    split_one(const float* source, __half* high, int* exponents, unsigned lines, unsigned matrices, int k,
              long long line_stride, long long k_stride, long long matrix_stride, long long target_stride,
              int shared_by) {
    warptile::griddepcontrol_launch_dependents();
    warptile::griddepcontrol_wait();
    WAY::move(
        {source, high, exponents, lines, matrices, k, line_stride, k_stride, matrix_stride, target_stride, shared_by},
        blockIdx.x);
}

// Two operands in one launch; the first has `blocks` CTAs.
template <typename FIRST, typename SECOND>
__global__ void __launch_bounds__(THREADS)
    split_two(const float* source, __half* high, int* exponents, unsigned lines, unsigned matrices, int k,
              long long line_stride, long long k_stride, long long matrix_stride, long long target_stride,
              int shared_by, const float* source2, __half* high2, int* exponents2, unsigned lines2, unsigned matrices2,
              int k2, long long line_stride2, long long k_stride2, long long matrix_stride2, long long target_stride2,
              int shared_by2, int blocks) {
    warptile::griddepcontrol_launch_dependents();
    warptile::griddepcontrol_wait();
    const int block = blockIdx.x;
    if (block < blocks) {
        FIRST::move({source, high, exponents, lines, matrices, k, line_stride, k_stride, matrix_stride, target_stride,
                     shared_by},
                    block);
    } else {
        SECOND::move({source2, high2, exponents2, lines2, matrices2, k2, line_stride2, k_stride2, matrix_stride2,
                      target_stride2, shared_by2},
                     block - blocks);
    }
}

}  // namespace operand_split
