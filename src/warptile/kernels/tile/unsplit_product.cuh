// What becomes of accumulators of scaled slices: scales are undone, and elements of lines that cannot be split are
// computed in float32.
#pragma once

#include "ptx/shared_memory.cuh"
#include "ptx/warpgroup.cuh"
#include "tile/split_scale.cuh"

namespace warptile {

// Float32 operands as the caller gave them, and the exponents of their lines. Matrices of a batch are `matrix_stride`
// elements apart; their lines are numbered one after the other, `matrix_lines` each. Both are zero where all of the
// batch share one matrix.
struct SplitSource {
    const float* data;
    const int* exponents;
    long long line_stride, k_stride, matrix_stride;
    int matrix_lines;

    // The number of the first line of a matrix.
    __device__ __forceinline__ int first_line(int matrix) const { return matrix * matrix_lines; }

    // Whether a line, if it is before `end`, cannot be split.
    __device__ __forceinline__ bool marked(int line, int end) const {
        return line < end && exponents[line] == CANNOT_SPLIT;
    }

    // The exponent of a line's scale; any that is legal for lines that have none.
    __device__ __forceinline__ int exponent(int line, int end) const {
        return line < end ? max(exponents[line], -MOST_SPLIT_EXPONENT) : 0;
    }

    // Whether lines `first` to `first` + COUNT - 1, those before `end`, are all split. All lanes of a warp call it.
    template <int COUNT>
    __device__ __forceinline__ bool all_split(int first, int end) const {
        bool found = false;
#pragma unroll
        for (int i = threadIdx.x % 32; i < COUNT; i += 32) found |= marked(first + i, end);
        return !__any_sync(0xffffffff, found);
    }
};

// One matrix of a batch. Of a single GEMM the members stay in constant memory.
template <bool BATCHED>
__device__ __forceinline__ decltype(auto) matrix_of_batch(const SplitSource& first, int matrix) {
    if constexpr (BATCHED) {
        return SplitSource{first.data + matrix * first.matrix_stride,
                           first.exponents + first.first_line(matrix),
                           first.line_stride,
                           first.k_stride,
                           0,
                           0};
    } else {
        return (first);
    }
}

// Where a thread's accumulators are in the part of D that begins at (row, column): PTX ISA, "Register Fragments for
// wgmma.mma_async.m64nNk16", matrix D.
struct AccumulatorPosition {
    int row, column;

    __device__ __forceinline__ AccumulatorPosition(int first_row, int first_column)
        : row(first_row + threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4),
          column(first_column + threadIdx.x % 4 * 2) {}
};

// Undoes the scales of rows and columns.
template <typename ACCUMULATORS, typename GEMM>
__device__ __forceinline__ void undo_scales(ACCUMULATORS& accumulators, const SplitSource& a, const SplitSource& b,
                                            const GEMM& gemm, int first_row, int first_column) {
    const AccumulatorPosition first(first_row, first_column);
    int of_rows[ACCUMULATORS::M64_BLOCKS][2];
#pragma unroll
    for (int m64 = 0; m64 < ACCUMULATORS::M64_BLOCKS; ++m64)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            of_rows[m64][half] = a.exponent(first.row + 64 * m64 + 8 * half, gemm.m);
        }
#pragma unroll
    for (int n8 = 0; n8 < ACCUMULATORS::N8_BLOCKS; ++n8)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int of_column = b.exponent(first.column + 8 * n8 + j, gemm.n);
#pragma unroll
            for (int m64 = 0; m64 < ACCUMULATORS::M64_BLOCKS; ++m64)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float& c = accumulators.c[m64][4 * n8 + 2 * half + j];
                    c = scaled_down(c, of_rows[m64][half] + of_column);
                }
        }
}

// Which rows and columns of a thread's accumulators cannot be split, a bit for each.
struct MarkedLines {
    unsigned rows, columns;
};

// How a warpgroup computes 64 * M64_BLOCKS x COLUMNS elements by multiply-adds, beside accumulators that it keeps: a
// thread has TM x TN of them in pieces of four rows and four columns, as in simt/register_tile.cuh. Fragments of
// `wgmma` are two rows of many columns, for which a thread would read more operands.
template <int M64_BLOCKS>
struct UnsplitTile {
    static constexpr int COLUMNS = 64, K = 16, PIECE = 4, ROWS = 64 * M64_BLOCKS, TM = 8 * M64_BLOCKS,
                         TN = COLUMNS / 16;
    static constexpr int A_PITCH = ROWS + PIECE, B_PITCH = COLUMNS + PIECE, B_OFFSET = 4 * K * A_PITCH;
    static constexpr int OF_A = ROWS * K / WARPGROUP, OF_B = COLUMNS * K / WARPGROUP;
    static constexpr int BYTES = B_OFFSET + 4 * K * B_PITCH, BLOCK_BYTES = 4 * 64 * 64;
    static_assert(TN == PIECE, "a thread's columns are one piece");

    // Two by two warps of four by eight lanes.
    static __device__ __forceinline__ int row(int i) {
        const int warp = threadIdx.x % WARPGROUP / 32, lane = threadIdx.x % 32;
        return warp / 2 * (ROWS / 2) + (lane / 8 + i / PIECE * 4) * PIECE + i % PIECE;
    }
    static __device__ __forceinline__ int column(int j) {
        const int warp = threadIdx.x % WARPGROUP / 32, lane = threadIdx.x % 32;
        return warp % 2 * (COLUMNS / 2) + lane % 8 * PIECE + j;
    }

    // Which element of a tile of LINES lines is number `number`: neighbouring threads have neighbours in memory.
    struct Element {
        int line, k;
    };
    template <int LINES>
    static __device__ __forceinline__ Element element(int i, bool along_k) {
        const int number = threadIdx.x % WARPGROUP + i * WARPGROUP;
        if (along_k) return {number / K, number % K};
        return {number % LINES, number / LINES};
    }

    // This thread's elements of the tile of an operand from line `first` and from `k` on.
    template <int LINES, int COUNT>
    static __device__ __forceinline__ void load(float (&to)[COUNT], const SplitSource& source, int first, int end,
                                                int k, int end_k) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const auto [line, at] = element<LINES>(i, source.k_stride == 1);
            to[i] = 0;
            if (k + at < end_k)
                to[i] = source.data[min(first + line, end - 1) * source.line_stride + (k + at) * source.k_stride];
        }
    }
    template <int LINES, int PITCH, int COUNT>
    static __device__ __forceinline__ void store(unsigned to, const float (&from)[COUNT], const SplitSource& source) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const auto [line, at] = element<LINES>(i, source.k_stride == 1);
            st_shared(to + 4 * (at * PITCH + line), Packet<4>{__float_as_uint(from[i])});
        }
    }

    // Pieces of one k's worth of a staged operand, APART bytes apart.
    template <int APART, int COUNT>
    static __device__ __forceinline__ void read(float (&to)[COUNT], unsigned from) {
#pragma unroll
        for (int i = 0; i < COUNT; i += PIECE) {
            const uint4 bits = ld_shared<16>(from + i / PIECE * APART).bits;
            to[i] = __uint_as_float(bits.x), to[i + 1] = __uint_as_float(bits.y);
            to[i + 2] = __uint_as_float(bits.z), to[i + 3] = __uint_as_float(bits.w);
        }
    }

    // Hands the elements of marked rows and columns over in the layout of `wgmma`'s fragments, 64 rows at a time, to
    // block number `n64` of 64 columns.
    template <typename ACCUMULATORS>
    static __device__ __forceinline__ void to_fragments(ACCUMULATORS& accumulators, int n64, const float (&c)[TM][TN],
                                                        unsigned memory, int barrier, const MarkedLines& marked) {
        const AccumulatorPosition mine(0, 0);
#pragma unroll
        for (int m64 = 0; m64 < M64_BLOCKS; ++m64) {
#pragma unroll
            for (int i = 0; i < TM; ++i)
                if (row(i) / 64 == m64)
                    st_shared(memory + 4 * (row(i) % 64 * 64 + column(0)),
                              Packet<16>{make_uint4(__float_as_uint(c[i][0]), __float_as_uint(c[i][1]),
                                                    __float_as_uint(c[i][2]), __float_as_uint(c[i][3]))});
            bar_sync<WARPGROUP>(barrier);
#pragma unroll
            for (int n8 = 0; n8 < 8; ++n8)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const uint2 pair =
                        ld_shared<8>(memory + 4 * ((mine.row + 8 * half) * 64 + 8 * n8 + mine.column)).bits;
                    float* const to = &accumulators.c[m64][4 * (8 * n64 + n8) + 2 * half];
                    const unsigned lines =
                        marked.rows >> (2 * m64 + half) & 1 ? 3 : marked.columns >> 2 * (8 * n64 + n8);
                    if (lines & 1) to[0] = __uint_as_float(pair.x);
                    if (lines & 2) to[1] = __uint_as_float(pair.y);
                }
            bar_sync<WARPGROUP>(barrier);
        }
    }
};

// The elements of lines that cannot be split, of a warpgroup's part of D, in float32, by fused multiply-adds along K
// from `first_k` to `end_k`. All others keep what they are, so that no element depends on other rows and columns than
// its own. Operands are staged in BYTES of shared memory at `memory`, which nothing reads any more; `barrier` is the
// warpgroup's. Rows and columns past the end repeat the last one.
template <int BYTES, typename ACCUMULATORS, typename GEMM>
__device__ __forceinline__ void multiply_unsplit(ACCUMULATORS& accumulators, const SplitSource& a, const SplitSource& b,
                                                 const GEMM& gemm, int first_row, int first_column, int first_k,
                                                 int end_k, unsigned memory, int barrier) {
    using TILE = UnsplitTile<ACCUMULATORS::M64_BLOCKS>;
    static_assert(TILE::BYTES <= BYTES && TILE::BLOCK_BYTES <= BYTES, "the output's buffers hold what is staged");
    constexpr int TM = TILE::TM, TN = TILE::TN, K = TILE::K;
    MarkedLines marked{};
    const AccumulatorPosition first(first_row, first_column);
#pragma unroll
    for (int i = 0; i < 2 * ACCUMULATORS::M64_BLOCKS; ++i)
        marked.rows |= static_cast<unsigned>(a.marked(first.row + 64 * (i / 2) + 8 * (i % 2), gemm.m)) << i;
#pragma unroll 4
    for (int i = 0; i < 2 * ACCUMULATORS::N8_BLOCKS; ++i)
        marked.columns |= static_cast<unsigned>(b.marked(first.column + 8 * (i / 2) + i % 2, gemm.n)) << i;
    const unsigned of_a = memory + 4 * TILE::row(0), of_b = memory + TILE::B_OFFSET + 4 * TILE::column(0);
#pragma unroll
    for (int n64 = 0; n64 < ACCUMULATORS::N8_BLOCKS / 8; ++n64) {
        float next_a[TILE::OF_A], next_b[TILE::OF_B];
        const auto load = [&](int k) {
            TILE::template load<TILE::ROWS>(next_a, a, first_row, gemm.m, k, end_k);
            TILE::template load<TILE::COLUMNS>(next_b, b, first_column + 64 * n64, gemm.n, k, end_k);
        };
        float c[TM][TN] = {};
        load(first_k);
#pragma unroll 1
        for (int begin = first_k; begin < end_k; begin += K) {
            TILE::template store<TILE::ROWS, TILE::A_PITCH>(memory, next_a, a);
            TILE::template store<TILE::COLUMNS, TILE::B_PITCH>(memory + TILE::B_OFFSET, next_b, b);
            bar_sync<WARPGROUP>(barrier);
            load(begin + K);
            float rows[2][TM], columns[2][TN];
            TILE::template read<64>(rows[0], of_a);
            TILE::template read<128>(columns[0], of_b);
#pragma unroll
            for (int k = 0; k < K; ++k) {
                if (k + 1 < K) {
                    TILE::template read<64>(rows[(k + 1) % 2], of_a + 4 * (k + 1) * TILE::A_PITCH);
                    TILE::template read<128>(columns[(k + 1) % 2], of_b + 4 * (k + 1) * TILE::B_PITCH);
                }
#pragma unroll
                for (int j = 0; j < TN; ++j)
#pragma unroll
                    for (int i = 0; i < TM; ++i) c[i][j] = __fmaf_rn(rows[k % 2][i], columns[k % 2][j], c[i][j]);
            }
            bar_sync<WARPGROUP>(barrier);
        }
        TILE::to_fragments(accumulators, n64, c, memory, barrier, marked);
    }
}

}  // namespace warptile
