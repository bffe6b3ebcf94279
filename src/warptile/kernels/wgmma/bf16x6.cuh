// wgmma-bf16x6: float32 on tensor cores without a pass before, for D with few rows. A float32 is the sum of three
// bfloat16, its slices: 24 bits are three times 8. Warps split what they load, B into registers and A into shared
// memory, and multiply six pairs of slices; the other three pairs are too small to count.
//
// The kernel computes the transpose of D: columns of B are the rows that wgmma takes from registers, so that every
// element of B, of which there are many, is split by one thread, once for each tile of rows of D.
#pragma once

#include "ptx/cp_async.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/cp_async_bulk_tensor.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "simt/operation.cuh"
#include "tile/batch.cuh"
#include "tile/epilogue_subtile.cuh"
#include "tile/parts_of_k.cuh"

namespace warptile {

// Beside the operands: a slot for each CTA's partial sums, and a counter of arrivals for each tile. Counters are zero
// when a launch begins and when it ends.
template <typename CONFIG>
struct Bf16x6Params {
    GemmParams<SwappableOperation<CONFIG>> gemm;
    float* partials;
    unsigned* arrivals;
    int splits;
    unsigned lets_next_start;  // the next launch may start early
    BatchStrides strides;
};

inline constexpr int SLICES = 3;

// Whether all values that a thread has loaded are sums of three bfloat16. What is so small that its last bits are below
// the smallest bfloat16, 2^-133, is not: values other than zero below 2^-110. Infinities and NaNs are not either, but
// have slices that are NaN, and so have all sums that they are a part of.
struct SplitCheck {
    static constexpr unsigned LEAST = (127u - 110) << 24;  // twice the bits of 2^-110
    unsigned least = ~0u;  // of all values, twice their bits minus one: of zero, all ones

    __device__ __forceinline__ void add(float value) { least = min(least, 2 * __float_as_uint(value) - 1); }
    __device__ __forceinline__ bool failed() const { return least < LEAST - 1; }
};

// The slices of two values, those of the first in the lower halves. Cutting 16 bits off leaves 8 of the mantissa, and
// the difference is exact.
__device__ __forceinline__ void split_pair(unsigned (&slices)[SLICES], float first, float second) {
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) {
        slices[slice] = __byte_perm(__float_as_uint(first), __float_as_uint(second), 0x7632);
        first -= __uint_as_float(__float_as_uint(first) & 0xffff0000);
        second -= __uint_as_float(__float_as_uint(second) & 0xffff0000);
    }
}

// One CTA's tile: BM rows and BN columns of D, 64 columns for each warpgroup.
template <typename CONFIG>
struct Bf16x6Tile {
    static constexpr int BM = CONFIG::BM, BN = CONFIG::BN, BK = CONFIG::BK, THREADS = BN * 2;
    static constexpr bool B_ALONG_K = CONFIG::B_COLUMN_MAJOR;
    static constexpr bool SHIFTED = CONFIG::B_WIDTH == 1;  // lines of B are unaligned (`stage_shifted_columns`)
    static_assert(SHIFTED || CONFIG::B_WIDTH == 4, "copies have 16 bytes");
    static_assert(BN % 64 == 0 && BK % 16 == 0 && BM % 8 == 0, "64 x BM x 16 for each instruction");

    // B's tile in shared memory as float32: columns of BK or rows of BN elements, and so far apart that the lanes of a
    // warp read from different banks, or of unaligned lines at most two from one.
    static constexpr int B_PITCH = !B_ALONG_K ? BN + 8 : SHIFTED ? BK + 8 : BK + 16;
    static constexpr int B_BYTES = 4 * B_PITCH * (B_ALONG_K ? BN : BK);
    // A's tile as slices, in core matrices of 8 rows and 16 bytes, those along K first.
    static constexpr int CORE_BYTES = 128, CORES_K = BK / 8, SLICE_BYTES = BM / 8 * CORES_K * CORE_BYTES;
    static constexpr int A_BYTES = SLICES * SLICE_BYTES;

    // D's tile in shared memory, from which it is stored: rows so far apart that lanes that write columns of it, or
    // read them where D lies by columns, use different banks.
    static constexpr int D_PITCH = BN + (CONFIG::D_COLUMN_MAJOR ? 5 : 4);

    // Lane group `t` of four holds k 2t, 2t + 1, 2t + 8 and 2t + 9 of an instruction (PTX ISA, "Register Fragments for
    // wgmma.mma_async.m64nNk16", matrix A). A sum has no order along K: these are elements k_of(t, 0) to k_of(t, 3) of
    // both operands, as the lanes read them from shared memory with the fewest bank conflicts.
    static constexpr bool IN_ORDER = B_ALONG_K && SHIFTED;  // the same k as in the instruction
    static __device__ __forceinline__ constexpr int k_of(int t, int j) {
        return IN_ORDER ? 2 * t + j % 2 + j / 2 * 8 : B_ALONG_K ? 4 * t + j : t + 4 * j;
    }

    // PTX ISA, "Matrix Descriptor Format": no swizzle; bits 32-45: from eight rows to the next, bits 16-29: from eight
    // elements along K to the next, all without their lowest four bits.
    static __device__ __forceinline__ unsigned long long a_descriptor(unsigned at) {
        constexpr unsigned long long STRIDE = static_cast<unsigned long long>(CORES_K * CORE_BYTES) >> 4 << 32;
        return STRIDE | static_cast<unsigned long long>(CORE_BYTES) >> 4 << 16 | (at & 0x3ffff) >> 4;
    }
};

// A CTA's copies of A: a unit is the four elements that one lane group multiplies or, IN_ORDER, four neighbours along
// K. The next tile is loaded into registers while this one is multiplied.
template <typename CONFIG, typename GEMM>
struct Bf16x6Rows {
    using TILE = Bf16x6Tile<CONFIG>;
    static constexpr int UNITS = TILE::BM * TILE::BK / 4, COUNT = (UNITS + TILE::THREADS - 1) / TILE::THREADS;
    static constexpr int STEPS = TILE::BK / 16;

    struct Unit {
        int row, step, t;
    };
    static __device__ __forceinline__ Unit unit(int i) {
        const int number = threadIdx.x + i * TILE::THREADS;
        if constexpr (CONFIG::A_COLUMN_MAJOR) {
            return {number % TILE::BM, number / TILE::BM / 4, number / TILE::BM % 4};
        } else if constexpr (TILE::IN_ORDER) {  // eight rows first: a core matrix covers all banks
            return {number / (32 * STEPS) * 8 + number % 8, number / 32 % STEPS, number / 8 % 4};
        } else {
            return {number / (4 * STEPS), number / 4 % STEPS, number % 4};
        }
    }
    static __device__ __forceinline__ constexpr int k_of(int t, int j) {
        return TILE::IN_ORDER ? 4 * t + j : TILE::k_of(t, j);
    }
    static __device__ __forceinline__ bool exists(int i) {
        return UNITS % TILE::THREADS == 0 || threadIdx.x + i * TILE::THREADS < UNITS;
    }

    float values[COUNT][4];

    // Loads the tile at `k`; rows past the end are the last one again, and elements from `end` on are zeros.
    __device__ __forceinline__ void load(const GEMM& gemm, int first_row, int k, int end) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const auto [row, step, t] = unit(i);
            const long long from = min(first_row + row, gemm.m - 1);
            const int at = k + 16 * step;
#pragma unroll
            for (int j = 0; j < 4; ++j) values[i][j] = 0;
            if (!exists(i)) continue;
            if constexpr (CONFIG::A_WIDTH == 4) {
                if (at + 4 * t < end) {
                    const float4 four = *reinterpret_cast<const float4*>(gemm.a + from * gemm.lda + at + 4 * t);
                    values[i][0] = four.x, values[i][1] = four.y, values[i][2] = four.z, values[i][3] = four.w;
                }
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const long long along = at + k_of(t, j);
                    if (along < end)
                        values[i][j] =
                            CONFIG::A_COLUMN_MAJOR ? gemm.a[along * gemm.lda + from] : gemm.a[from * gemm.lda + along];
                }
            }
        }
    }

    // Stores the slices of what was loaded.
    __device__ __forceinline__ void store(unsigned to, SplitCheck& check) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (!exists(i)) continue;
            const auto [row, step, t] = unit(i);
            const unsigned at = to + (row / 8 * TILE::CORES_K + 2 * step) * TILE::CORE_BYTES + row % 8 * 16 +
                                (TILE::IN_ORDER ? 0 : t * 4);
            if constexpr (TILE::IN_ORDER) {
                unsigned first[SLICES], second[SLICES];
                split_pair(first, values[i][0], values[i][1]);
                split_pair(second, values[i][2], values[i][3]);
#pragma unroll
                for (int slice = 0; slice < SLICES; ++slice)
                    st_shared(at + slice * TILE::SLICE_BYTES + t / 2 * TILE::CORE_BYTES + t % 2 * 8,
                              Packet<8>{make_uint2(first[slice], second[slice])});
            } else {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    unsigned slices[SLICES];
                    split_pair(slices, values[i][2 * half], values[i][2 * half + 1]);
#pragma unroll
                    for (int slice = 0; slice < SLICES; ++slice)
                        st_shared(at + slice * TILE::SLICE_BYTES + half * TILE::CORE_BYTES, Packet<4>{slices[slice]});
                }
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) check.add(values[i][j]);
        }
    }
};

// Starts the copies of B's tile at column `first` and `k` to shared memory, for lines that begin at multiples of 16
// bytes: columns past the end are the last ones again, and elements from `end` along K on are zeros.
template <typename CONFIG, typename GEMM>
__device__ __forceinline__ void stage_columns(unsigned to, const GEMM& gemm, int first, int k, int end) {
    using TILE = Bf16x6Tile<CONFIG>;
    constexpr int WIDTH = CONFIG::B_WIDTH, PER_LINE = (TILE::B_ALONG_K ? TILE::BK : TILE::BN) / WIDTH;
    constexpr int UNITS = TILE::BN * TILE::BK / WIDTH;
    constexpr int COUNT = UNITS / TILE::THREADS, UNROLLED = COUNT < 2 ? 1 : 2;  // addresses take registers
    static_assert(UNITS % TILE::THREADS == 0, "every thread copies the same number of vectors");
#pragma unroll UNROLLED
    for (int i = 0; i < COUNT; ++i) {
        const int number = threadIdx.x + i * TILE::THREADS;
        const int line = number / PER_LINE, in_line = number % PER_LINE * WIDTH;
        const int column = TILE::B_ALONG_K ? line : in_line, along = k + (TILE::B_ALONG_K ? in_line : line);
        const long long from = min(first + column, gemm.n - (TILE::B_ALONG_K ? 1 : WIDTH)), at = min(along, end - 1);
        const float* const source =
            gemm.b + (TILE::B_ALONG_K ? from * gemm.ldb + (along < end ? along : 0) : at * gemm.ldb + from);
        cp_async_zero_fill<4 * WIDTH>(to + 4 * (line * TILE::B_PITCH + in_line), source, along < end ? 4 * WIDTH : 0);
    }
}

// The same for unaligned lines. What is copied, 16 bytes at a time, begins at the multiple of 16 bytes before a line's
// first element of the tile, which therefore lies `elements_past_16_bytes` further on in shared memory too. Unless
// WHOLE, elements past the end of a line are zeros, and those before the matrix are not read.
template <typename CONFIG, bool WHOLE, typename GEMM>
__device__ __forceinline__ void stage_shifted_lines(unsigned to, const GEMM& gemm, int first_line, int lines, int begin,
                                                    int stop) {
    using TILE = Bf16x6Tile<CONFIG>;
    constexpr int ELEMENTS = TILE::B_ALONG_K ? TILE::BK : TILE::BN, LINES = TILE::B_ALONG_K ? TILE::BN : TILE::BK;
    constexpr int PER_LINE = ELEMENTS / 4, AT_ONCE = TILE::THREADS / PER_LINE;  // and one more of each line
    static_assert(LINES % AT_ONCE == 0 && LINES <= TILE::THREADS, "every thread copies the same number of vectors");
    static_assert(4 * PER_LINE + 4 <= TILE::B_PITCH, "a line has room for what is copied");
    const auto copy = [&](int line, int in_line, const float* first) {
        const int past = elements_past_16_bytes(first);
        const float* const source = first - past + in_line;
        const unsigned target = to + 4 * (line * TILE::B_PITCH + in_line);
        if constexpr (WHOLE) {
            cp_async<16>(target, source);
        } else {
            const int inside = first_line + line < lines ? stop - (begin - past + in_line) : 0;
            if (source >= gemm.b) {
                cp_async_zero_fill<16>(target, source, min(max(inside, 0), 4) * 4);
            } else {
#pragma unroll
                for (int i = 1; i < 4; ++i)
                    if (source + i >= gemm.b) cp_async_zero_fill<4>(target + 4 * i, source + i, i < inside ? 4 : 0);
            }
        }
    };
    const auto first_of = [&](int line) { return gemm.b + (first_line + line) * gemm.ldb + begin; };
    const int line = threadIdx.x / PER_LINE;
    const float* first = first_of(line);
#pragma unroll
    for (int pass = 0; pass < LINES; pass += AT_ONCE) {
        copy(pass + line, threadIdx.x % PER_LINE * 4, first);
        first += AT_ONCE * gemm.ldb;
    }
    if (threadIdx.x < LINES) copy(threadIdx.x, ELEMENTS, first_of(threadIdx.x));
}

template <typename CONFIG, typename GEMM>
__device__ __forceinline__ void stage_shifted_columns(unsigned to, const GEMM& gemm, int first, int k, int end) {
    constexpr bool ALONG_K = Bf16x6Tile<CONFIG>::B_ALONG_K;
    constexpr int BK = CONFIG::BK, BN = CONFIG::BN;
    // Whether the matrix has all of the tile, and 16 bytes on both sides of its lines.
    const bool whole = k + BK <= end && first + BN <= gemm.n && (first > 0 || k > 0) &&
                       (ALONG_K ? k + BK + 4 <= gemm.k : first + BN + 4 <= gemm.n);
    const int first_line = ALONG_K ? first : k, begin = ALONG_K ? k : first;
    if (whole) {
        stage_shifted_lines<CONFIG, true>(to, gemm, first_line, 0, begin, 0);
    } else {
        stage_shifted_lines<CONFIG, false>(to, gemm, first_line, ALONG_K ? gemm.n : end, begin, ALONG_K ? end : gemm.n);
    }
}

// A warp's fragments of B for one tile: slices of 16 columns.
template <typename CONFIG>
struct Bf16x6Fragments {
    using TILE = Bf16x6Tile<CONFIG>;
    static constexpr int STEPS = TILE::BK / 16;
    unsigned slices[STEPS][SLICES][4];

    // Defines them before what follows.
    __device__ __forceinline__ void fence() {
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice) warpgroup_fence_operand(slices[step][slice]);
    }

    // The first column of a lane's two.
    static __device__ __forceinline__ int column() { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4; }

    // By how many elements the lines that this lane reads are shifted in shared memory. Of lines along K it reads two.
    // Of lines along N it reads every fourth, and these have the same shift.
    int shifts[TILE::SHIFTED ? 2 : 1] = {};
    template <typename GEMM>
    __device__ __forceinline__ void find_shifts(const GEMM& gemm, int first, int k) {
        if constexpr (TILE::SHIFTED) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const long long line = TILE::B_ALONG_K ? min(first + column() + 8 * half, gemm.n - 1) : threadIdx.x % 4;
                shifts[half] = elements_past_16_bytes(gemm.b + line * gemm.ldb + (TILE::B_ALONG_K ? k : first));
            }
        }
    }

    // Reads and splits them.
    __device__ __forceinline__ void load(unsigned from, SplitCheck& check) {
        const int t = threadIdx.x % 4;
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int column = this->column() + 8 * half;
                const unsigned shift = TILE::SHIFTED ? 4 * shifts[half] : 0;
                float values[4];
                if constexpr (TILE::B_ALONG_K && !TILE::SHIFTED) {
                    const uint4 bits = ld_shared<16>(from + 4 * (column * TILE::B_PITCH + 16 * step + 4 * t)).bits;
                    values[0] = __uint_as_float(bits.x), values[1] = __uint_as_float(bits.y);
                    values[2] = __uint_as_float(bits.z), values[3] = __uint_as_float(bits.w);
                } else {
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        const int k = 16 * step + TILE::k_of(t, j);
                        const int at = TILE::B_ALONG_K ? column * TILE::B_PITCH + k : k * TILE::B_PITCH + column;
                        values[j] = __uint_as_float(ld_shared<4>(from + shift + 4 * at).bits);
                    }
                }
#pragma unroll
                for (int pair = 0; pair < 2; ++pair) {
                    unsigned split[SLICES];
                    split_pair(split, values[2 * pair], values[2 * pair + 1]);
#pragma unroll
                    for (int slice = 0; slice < SLICES; ++slice) slices[step][slice][2 * pair + half] = split[slice];
                }
#pragma unroll
                for (int j = 0; j < 4; ++j) check.add(values[j]);
            }
    }
};

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::BN * 2, CONFIG::MIN_BLOCKS)
    wgmma_bf16x6(const __grid_constant__ Bf16x6Params<CONFIG> params) {
    using TILE = Bf16x6Tile<CONFIG>;
    using INSTRUCTION = Wgmma<__nv_bfloat16, float, TILE::BM>;
    constexpr int BK = TILE::BK, STAGES = CONFIG::STAGES, STEPS = BK / 16, REGISTERS = INSTRUCTION::REGISTERS;
    if (params.lets_next_start) let_next_launch_start();
    const unsigned splits = params.splits, tiles_m = tiles_along(params.gemm.m, TILE::BM);
    const PartOfTile<CONFIG::BATCHED> own(splits, tiles_m * tiles_along(params.gemm.n, TILE::BN));
    const auto gemm = matrix_of_batch<CONFIG::BATCHED>(params.gemm, params.strides, own.matrix);
    const int first_row = own.tile % tiles_m * TILE::BM, first_column = own.tile / tiles_m * TILE::BN;
    const unsigned all_tiles = tiles_along(gemm.k, BK);
    const int begin = begin_of_part(all_tiles, own.part, splits),
              tiles = begin_of_part(all_tiles, own.part + 1, splits) - begin;
    const int first_k = begin * BK, end_k = min(gemm.k, (begin + tiles) * BK);

    extern __shared__ __align__(128) unsigned char shared_bytes[];  // STAGES tiles of B, and two of A
    const unsigned b_stages = shared_address(shared_bytes), a_stages = b_stages + STAGES * TILE::B_BYTES;

    const auto stage = [&](int tile) {
        const unsigned to = b_stages + tile % STAGES * TILE::B_BYTES;
        if constexpr (TILE::SHIFTED) {
            stage_shifted_columns<CONFIG>(to, gemm, first_column, first_k + tile * BK, end_k);
        } else {
            stage_columns<CONFIG>(to, gemm, first_column, first_k + tile * BK, end_k);
        }
    };
    wait_for_previous_launch();
    Bf16x6Rows<CONFIG, decltype(gemm)> rows;
    rows.load(gemm, first_row, first_k, end_k);
#pragma unroll
    for (int tile = 0; tile < STAGES - 1; ++tile) {
        stage(tile);
        cp_async_commit_group();
    }

    float products[REGISTERS], sums[REGISTERS];
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i) products[i] = sums[i] = 0;
    warpgroup_fence_operand(products);  // or else the compiler takes the zeros for a part of the first wgmmas (C7515)
    Bf16x6Fragments<CONFIG> fragments;
    fragments.find_shifts(gemm, first_column, first_k);
    SplitCheck check;
    const auto promote = [&] {
        wgmma_wait_group<0>();
        warpgroup_fence_operand(products);
#pragma unroll
        for (int i = 0; i < REGISTERS; ++i) sums[i] += products[i];
    };
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        const unsigned slices_of_a = a_stages + tile % 2 * TILE::A_BYTES;
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        if (tile + STAGES - 1 < tiles) stage(tile + STAGES - 1);
        cp_async_commit_group();
        rows.store(slices_of_a, check);
        fence_proxy_async();
        if (tile + 1 < tiles) rows.load(gemm, first_row, first_k + (tile + 1) * BK, end_k);
        promote();
        fragments.load(b_stages + tile % STAGES * TILE::B_BYTES, check);
        __syncthreads();
        // From small products to large ones: the tensor core truncates, relative to what it has added up.
        constexpr int OF_B[] = {2, 0, 1, 1, 0, 0}, OF_A[] = {0, 2, 1, 0, 1, 0};
        fragments.fence();
        wgmma_fence();
#pragma unroll
        for (int pair = 0; pair < 6; ++pair)
#pragma unroll
            for (int step = 0; step < STEPS; ++step)
                INSTRUCTION::template mma_async<false, false>(
                    products, fragments.slices[step][OF_B[pair]],
                    TILE::a_descriptor(slices_of_a + OF_A[pair] * TILE::SLICE_BYTES + 2 * step * TILE::CORE_BYTES),
                    pair > 0 || step > 0);
        wgmma_commit_group();
    }
    promote();

    // What cannot be split, or overflowed: this part of the tile by multiply-adds, as float32 has it.
    const int row = threadIdx.x % 4 * 2, column = Bf16x6Fragments<CONFIG>::column();  // in the tile
    bool bad = check.failed();
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i) bad |= (__float_as_uint(sums[i]) & 0x7f800000) == 0x7f800000;
    if (__syncthreads_or(bad)) {
#pragma unroll
        for (int i = 0; i < REGISTERS; ++i) sums[i] = 0;
#pragma unroll 1
        for (int k = first_k; k < end_k; ++k) {
            float of_b[2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
                of_b[half] = *gemm.b_at(k, min(first_column + column + 8 * half, gemm.n - 1));
#pragma unroll
            for (int i = 0; i < REGISTERS; ++i) {
                const int at = min(first_row + row + i / 4 * 8 + i % 2, gemm.m - 1);
                sums[i] = __fmaf_rn(*gemm.a_at(at, k), of_b[i / 2 % 2], sums[i]);
            }
        }
    }

    float* const slots = params.partials + static_cast<long long>(own.number) * splits * REGISTERS * TILE::THREADS;
    if (splits > 1 && !add_parts<TILE::THREADS>(sums, slots, params.arrivals + own.number, own.part, splits)) return;
    // Through shared memory, so that neighbouring threads store neighbours: all warps have read their last fragments.
    constexpr int PITCH = TILE::D_PITCH;
    float* const tile_of_d = reinterpret_cast<float*>(shared_bytes);
    float* const own_part = tile_of_d + row * PITCH + column;
    cp_async_wait_group<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < REGISTERS; ++i) own_part[(i / 4 * 8 + i % 2) * PITCH + i / 2 % 2 * 8] = sums[i];
    __syncthreads();
    store_shared<TILE::BM, TILE::BN, PITCH, TILE::THREADS>(tile_of_d, gemm, first_row, first_column);
}

}  // namespace warptile
