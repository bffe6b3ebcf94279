// What becomes of accumulators of scaled slices: scales are undone, or the tile is computed in float32.
#pragma once

#include "ptx/shared_memory.cuh"
#include "ptx/warpgroup.cuh"
#include "tile/split_scale.cuh"

namespace warptile {

// Float32 operands as the caller gave them, and the exponents of their lines.
struct SplitSource {
    const float* data;
    const int* exponents;
    long long line_stride, k_stride;

    // Whether lines `first` to `first` + COUNT - 1, those before `end`, are all split. All lanes of a warp call it.
    template <int COUNT>
    __device__ __forceinline__ bool all_split(int first, int end) const {
        bool marked = false;
#pragma unroll
        for (int i = threadIdx.x % 32; i < COUNT; i += 32)
            if (first + i < end) marked |= exponents[first + i] == CANNOT_SPLIT;
        return !__any_sync(0xffffffff, marked);
    }
};

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
            const int row = first.row + 64 * m64 + 8 * half;
            of_rows[m64][half] = row < gemm.m ? a.exponents[row] : 0;
        }
#pragma unroll
    for (int n8 = 0; n8 < ACCUMULATORS::N8_BLOCKS; ++n8)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int column = first.column + 8 * n8 + j;
            const int of_column = column < gemm.n ? b.exponents[column] : 0;
#pragma unroll
            for (int m64 = 0; m64 < ACCUMULATORS::M64_BLOCKS; ++m64)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float& c = accumulators.c[m64][4 * n8 + 2 * half + j];
                    c = scaled_down(c, of_rows[m64][half] + of_column);
                }
        }
}

// Tiles of float32 operands in shared memory: ROWS lines of A with elements along K side by side, and COLUMNS lines of
// B, of which neighbours lie side by side. With these pitches neither stores nor loads have bank conflicts where lines
// of both are contiguous. As many elements along K as fit into BYTES.
template <int ROWS, int COLUMNS, int BYTES>
struct UnsplitStage {
    static __device__ constexpr int bytes(int k) { return 4 * (ROWS * (k + 4) + k * (COLUMNS + 2)); }
    static constexpr int K = bytes(16) <= BYTES ? 16 : bytes(8) <= BYTES ? 8 : 4;
    static constexpr int A_PITCH = K + 4, B_PITCH = COLUMNS + 2, B_OFFSET = 4 * ROWS * A_PITCH;
    static constexpr int OF_A = (ROWS * K + WARPGROUP - 1) / WARPGROUP,
                         OF_B = (COLUMNS * K + WARPGROUP - 1) / WARPGROUP;
    static_assert(bytes(K) <= BYTES, "the output's buffers hold a tile of four along K");
    float a[OF_A], b[OF_B];  // a thread's elements of the next tiles

    // Which element of a tile of LINES lines is number `number`: neighbouring threads have neighbours in memory.
    struct Element {
        int line, k;
    };
    template <int LINES>
    static __device__ __forceinline__ Element element(int number, const SplitSource& source) {
        if (source.k_stride == 1) return {number / K, number % K};
        return {number % LINES, number / LINES};
    }

    template <int LINES, int COUNT>
    static __device__ __forceinline__ void load(float (&to)[COUNT], const SplitSource& source, int first, int end,
                                                int k, int end_k) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const auto [line, at] = element<LINES>(threadIdx.x % WARPGROUP + i * WARPGROUP, source);
            to[i] = 0;
            if (k + at < end_k)
                to[i] = source.data[min(first + line, end - 1) * source.line_stride + (k + at) * source.k_stride];
        }
    }

    template <int LINES, int LINE_PITCH, int K_PITCH, int COUNT>
    static __device__ __forceinline__ void store(unsigned to, const float (&from)[COUNT], const SplitSource& source) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int number = threadIdx.x % WARPGROUP + i * WARPGROUP;
            const auto [line, at] = element<LINES>(number, source);
            if (LINES * K % WARPGROUP == 0 || number < LINES * K)
                st_shared(to + 4 * (line * LINE_PITCH + at * K_PITCH), Packet<4>{__float_as_uint(from[i])});
        }
    }
};

// The elements of a warpgroup's part of D in float32, by fused multiply-adds along K: for tiles with lines that cannot
// be split. Operands are staged in BYTES of shared memory at `memory`, which nothing reads any more; `barrier` is the
// warpgroup's. Rows and columns past the end repeat the last one.
template <int BYTES, typename ACCUMULATORS, typename GEMM>
__device__ __forceinline__ void multiply_unsplit(ACCUMULATORS& accumulators, const SplitSource& a, const SplitSource& b,
                                                 const GEMM& gemm, int first_row, int first_column, unsigned memory,
                                                 int barrier) {
    constexpr int ROWS = 64 * ACCUMULATORS::M64_BLOCKS, COLUMNS = 8 * ACCUMULATORS::N8_BLOCKS;
    using STAGE = UnsplitStage<ROWS, COLUMNS, BYTES>;
    const AccumulatorPosition inside(0, 0);
    const unsigned rows = memory + 4 * inside.row * STAGE::A_PITCH;
    const unsigned columns = memory + STAGE::B_OFFSET + 4 * inside.column;
    STAGE next;
    const auto load = [&](int k) {
        STAGE::template load<ROWS>(next.a, a, first_row, gemm.m, k, gemm.k);
        STAGE::template load<COLUMNS>(next.b, b, first_column, gemm.n, k, gemm.k);
    };
    accumulators.zero();
    load(0);
#pragma unroll 1
    for (int begin = 0; begin < gemm.k; begin += STAGE::K) {
        STAGE::template store<ROWS, STAGE::A_PITCH, 1>(memory, next.a, a);
        STAGE::template store<COLUMNS, 1, STAGE::B_PITCH>(memory + STAGE::B_OFFSET, next.b, b);
        bar_sync<WARPGROUP>(barrier);
        load(begin + STAGE::K);
#pragma unroll 4
        for (int k = 0; k < STAGE::K; ++k) {
            float of_rows[ACCUMULATORS::M64_BLOCKS][2];
#pragma unroll
            for (int m64 = 0; m64 < ACCUMULATORS::M64_BLOCKS; ++m64)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    of_rows[m64][half] =
                        __uint_as_float(ld_shared<4>(rows + 4 * ((64 * m64 + 8 * half) * STAGE::A_PITCH + k)).bits);
#pragma unroll
            for (int n8 = 0; n8 < ACCUMULATORS::N8_BLOCKS; ++n8) {
                const auto pair = ld_shared<8>(columns + 4 * (k * STAGE::B_PITCH + 8 * n8)).bits;
                const float of_columns[2] = {__uint_as_float(pair.x), __uint_as_float(pair.y)};
#pragma unroll
                for (int m64 = 0; m64 < ACCUMULATORS::M64_BLOCKS; ++m64)
#pragma unroll
                    for (int half = 0; half < 2; ++half)
#pragma unroll
                        for (int j = 0; j < 2; ++j) {
                            float& c = accumulators.c[m64][4 * n8 + 2 * half + j];
                            c = __fmaf_rn(of_rows[m64][half], of_columns[j], c);
                        }
            }
        }
        bar_sync<WARPGROUP>(barrier);
    }
}

}  // namespace warptile
