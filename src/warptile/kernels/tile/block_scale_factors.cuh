// What the sums of an interval along K are multiplied by when they are promoted: nothing, or the scales of the blocks
// of A and B that they are sums over.
#pragma once

#include "epilogue/block_scales.cuh"
#include "epilogue/operands.cuh"
#include "ptx/warpgroup.cuh"
#include "tile/traits.cuh"

namespace warptile {

// Operands whose blocks have no scales: promotion adds.
struct NoFactors {
    static constexpr int REGISTERS = 0;

    __device__ __forceinline__ void advance() {}

    template <typename ACCUMULATORS, typename REGISTER>
    __device__ __forceinline__ void promote(REGISTER& accumulator, REGISTER sum, int, int) const {
        ACCUMULATORS::add(accumulator, sum);
    }
};

// `value`, for all that the compiler knows different in each lane. It keeps what it knows to be the same in uniform
// registers, and to bring a loaded value there it waits for the load at once.
__device__ __forceinline__ int not_uniform(int value) { return __shfl_sync(~0u, value, threadIdx.x % 32); }

// The scales of one operand that a thread needs for an interval: COUNT of them, loaded two intervals ahead. One is not
// enough: a warp that waits for a load from L2 does not issue the next wgmmas.
template <typename SCALES, int COUNT>
struct ScalesOfInterval {
    using ELEMENT = typename SCALES::ELEMENT;
    const ELEMENT* at[COUNT];  // those of the interval after `after`
    float next[COUNT];

    __device__ __forceinline__ void load(long long k_stride) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            next[i] = static_cast<float>(*at[i]);
            at[i] += k_stride;
        }
    }
};
template <int COUNT>
struct ScalesOfInterval<NoBlockScales, COUNT> {
    static constexpr float next[COUNT] = {1};

    __device__ __forceinline__ void load(long long) {}
    __device__ __forceinline__ void advance() {}
};

// Scales of single columns of B are too many to be loaded an interval ahead: they are loaded before the wait for the
// interval's wgmmas.
template <typename SCALES, int N8_BLOCKS>
struct ScalesOfColumns {
    using ELEMENT = typename SCALES::ELEMENT;
    const ELEMENT* row;  // of the scales, for the interval after this one
    long long column_stride;
    int first, last;  // columns of this thread's first element, and of D
    float now[N8_BLOCKS][2];

    __device__ __forceinline__ void load(long long k_stride) {
        if (SCALES::PAIRS && first + 8 * N8_BLOCKS <= last) {
            const auto* pairs = reinterpret_cast<const EpilogueVector<ELEMENT, 2>*>(row + first);
#pragma unroll
            for (int n8 = 0; n8 < N8_BLOCKS; ++n8) {
                const EpilogueVector<ELEMENT, 2> pair = pairs[4 * n8];
#pragma unroll
                for (int j = 0; j < 2; ++j) now[n8][j] = static_cast<float>(pair.elements[j]);
            }
        } else {
#pragma unroll
            for (int n8 = 0; n8 < N8_BLOCKS; ++n8)
#pragma unroll
                for (int j = 0; j < 2; ++j)
                    now[n8][j] = static_cast<float>(row[min(first + 8 * n8 + j, last) * column_stride]);
        }
        row += k_stride;
    }
};

// The factors of a thread's accumulators of a tile, M64_BLOCKS times 64 rows and BN columns of a warpgroup, as
// `WgmmaAccumulators` has them. Rows and columns outside of D repeat the last ones.
template <typename EPILOGUE, int BN, int M64_BLOCKS>
struct BlockFactors {
    using SCALES_OF_A = decltype(static_cast<const EPILOGUE*>(nullptr)->scales_of_a());
    using SCALES_OF_B = decltype(static_cast<const EPILOGUE*>(nullptr)->scales_of_b());
    static constexpr int LINES_A = SCALES_OF_A::LINES, LINES_B = SCALES_OF_B::LINES;
    static constexpr bool BY_COLUMNS = LINES_B == 1;
    static constexpr int ROWS = LINES_A == 1 ? 2 : 1;  // scales of A for a thread's rows of a block of 64
    static_assert(LINES_A <= 1 || LINES_A % 64 == 0, "64 rows of A share a scale");
    // Blocks of columns that a tile has a part of: one, or two. The second one begins with a multiple of STEP columns.
    static constexpr int COLUMN_BLOCKS = LINES_B <= 1 || LINES_B % BN == 0 ? 1 : 2, STEP = BN & -BN;
    static_assert(COLUMN_BLOCKS == 1 || LINES_B - STEP + BN <= 2 * LINES_B, "a tile has a part of two blocks");

    static constexpr int ROW_BLOCKS = LINES_A > 0 ? M64_BLOCKS * ROWS : 1;
    // Of a thread: distances and counters; of each scale an address, two values and a factor; values of columns.
    static constexpr int SCALES = (LINES_A > 0 ? ROW_BLOCKS : 0) + (LINES_B > 1 ? COLUMN_BLOCKS : 0);
    static constexpr int REGISTERS = 6 + 5 * SCALES + (BY_COLUMNS ? BN / 4 : 0);
    float products[ROW_BLOCKS][COLUMN_BLOCKS];  // of the scales of this interval, but those of single columns
    ScalesOfInterval<SCALES_OF_A, ROW_BLOCKS> a;
    ScalesOfInterval<typename Choice<BY_COLUMNS, NoBlockScales, SCALES_OF_B>::type, COLUMN_BLOCKS> b;
    ScalesOfColumns<typename Choice<BY_COLUMNS, SCALES_OF_B, BlockScales<float, 1, false>>::type, BN / 8> columns;
    long long k_stride_a, k_stride_b;
    int ahead;         // intervals of the matrix whose scales are not loaded yet
    int second_block;  // column of the tile that the second block of columns begins with

    // Begins with interval number `interval` of `intervals` of a tile, for the part of matrix `batch` of D that begins
    // at (row, column) and is inside of m x n. Loads the scales of the first two.
    __device__ __forceinline__ void begin(const EPILOGUE& epilogue, int batch, int row, int column, int m, int n,
                                          int interval, int intervals) {
        // Where this thread's accumulators are: PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16", matrix D.
        const int first_row = row + threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4;
        if constexpr (LINES_A > 0) {
            const auto scales = epilogue.scales_of_a();
            k_stride_a = scales.column_stride;
            const auto* first = scales.data + batch * scales.matrix_stride + interval * k_stride_a;
#pragma unroll
            for (int i = 0; i < ROW_BLOCKS; ++i) {
                const int line =
                    ROWS == 2 ? min(first_row + 64 * (i / 2) + 8 * (i % 2), m - 1) : min(row + 64 * i, m - 1) / LINES_A;
                a.at[i] = first + line * scales.row_stride;
            }
        }
        if constexpr (LINES_B > 0) {
            const auto scales = epilogue.scales_of_b();
            k_stride_b = scales.row_stride;
            const auto* first = scales.data + batch * scales.matrix_stride + interval * k_stride_b;
            if constexpr (BY_COLUMNS) {
                columns.row = first;
                columns.column_stride = scales.column_stride;
                columns.first = column + threadIdx.x % 4 * 2;
                columns.last = n - 1;
            } else {
#pragma unroll
                for (int i = 0; i < COLUMN_BLOCKS; ++i)
                    b.at[i] =
                        first + min(column + LINES_B * i, n - 1) / LINES_B * scales.column_stride + not_uniform(0);
                second_block = LINES_B - column % LINES_B;
            }
        }
        ahead = intervals - interval;
        load();
    }

    // Goes on to the next interval, the first one at first.
    __device__ __forceinline__ void advance() {
#pragma unroll
        for (int i = 0; i < ROW_BLOCKS; ++i)
#pragma unroll
            for (int j = 0; j < COLUMN_BLOCKS; ++j) products[i][j] = a.next[i] * b.next[j];
        if constexpr (BY_COLUMNS)
            if (ahead > 0) columns.load(k_stride_b);
        --ahead;
        load();
    }

    // Adds the interval's sum in register `i` of a block of 64 rows to an accumulator.
    template <typename ACCUMULATORS, typename REGISTER>
    __device__ __forceinline__ void promote(REGISTER& accumulator, REGISTER sum, int m64, int i) const {
        const int half = i / 2 % 2, n8 = i / 4;
        const auto& product = products[LINES_A > 0 ? m64 * ROWS + (ROWS == 2 ? half : 0) : 0];
        float factor = product[0];
        if constexpr (COLUMN_BLOCKS == 2) factor = 8 * n8 / STEP * STEP < second_block ? product[0] : product[1];
        if constexpr (BY_COLUMNS) factor *= columns.now[n8][i % 2];
        accumulator = __fmaf_rn(sum, factor, accumulator);
    }

  private:
    __device__ __forceinline__ void load() {
        if (ahead > 0) {
            a.load(k_stride_a);
            b.load(k_stride_b);
        }
    }
};

// The factors of a kernel with such an epilogue.
template <typename EPILOGUE, int BN, int M64_BLOCKS, bool BLOCK_SCALED = EPILOGUE::BLOCK_SCALED>
struct FactorsOf {
    using type = NoFactors;
};
template <typename EPILOGUE, int BN, int M64_BLOCKS>
struct FactorsOf<EPILOGUE, BN, M64_BLOCKS, true> {
    using type = BlockFactors<EPILOGUE, BN, M64_BLOCKS>;
};

}  // namespace warptile
