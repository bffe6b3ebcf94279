// The direct epilogue: from accumulators straight to global memory, two neighbouring elements in one access where D's
// alignment allows.
#pragma once

#include "ptx/warpgroup.cuh"
#include "tile/vector.cuh"
#include "tile/wgmma_accumulators.cuh"

namespace warptile {

// The element of D or C at (row, column).
template <typename OPERATION, typename OUT>
__device__ __forceinline__ OUT* element_at(OUT* matrix, long long leading, int row, int column) {
    return matrix + (OPERATION::D_COLUMN_MAJOR ? column * leading + row : row * leading + column);
}

// What an epilogue reads for the two elements of D at (row, column) and its right neighbour.
template <typename OPERATION>
__device__ __forceinline__ auto load_epilogue_pair(const GemmParams<OPERATION>& gemm, int row, int column) {
    return gemm.template load<2>(row, column, elements_inside<2>(gemm, row, column));
}

// The two elements of D at (row, column) and its right neighbour: alpha * accumulator + beta * C, and the epilogue of
// that if there is one, with what it has loaded for them and where it leaves a further output (`fused_elements`). C is
// read where beta is not zero; without WITH_C it is known to be zero.
template <bool WITH_C = true, typename OPERATION, typename... FUSED>
__device__ __forceinline__ Vector<typename OPERATION::OUT, 2> epilogue_pair(typename OPERATION::ACC_ELEMENT left,
                                                                            typename OPERATION::ACC_ELEMENT right,
                                                                            const GemmParams<OPERATION>& gemm, int row,
                                                                            int column, FUSED&... fused) {
    using OUT = typename OPERATION::OUT;
    OUT source[2] = {};
    const auto beta = WITH_C ? gemm.beta : typename OPERATION::SCALE(0);
    if (beta != typename OPERATION::SCALE(0) && row < gemm.m) {
        if (column < gemm.n) source[0] = *element_at<OPERATION>(gemm.c, gemm.ldc, row, column);
        if (column + 1 < gemm.n) source[1] = *element_at<OPERATION>(gemm.c, gemm.ldc, row, column + 1);
    }
    if constexpr (GemmParams<OPERATION>::EPILOGUE::FUSED) {
        const typename OPERATION::ACC_ELEMENT values[] = {left, right};
        Vector<OUT, 2> result;
        fused_elements(values, beta, source, fused..., result.elements, gemm, row, column,
                       elements_inside<2>(gemm, row, column));
        return result;
    } else {
        constexpr bool SATURATED = SATURATES<typename OPERATION::ACCUMULATOR>;
        return {scaled<OUT, SATURATED>(left, gemm.alpha, beta, &source[0]),
                scaled<OUT, SATURATED>(right, gemm.alpha, beta, &source[1])};
    }
}

// Where the warpgroup's part of D begins at (row, column): row and column of the pair that this thread holds in a block
// of 64 rows (`AccumulatorTile::pair`).
template <typename ACCUMULATORS>
__device__ __forceinline__ int row_of_pair(int m64, int half, int row) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
    return row + 64 * m64 + ACCUMULATORS::row_of(16 * warp + 8 * half + lane / 4);
}
__device__ __forceinline__ int column_of_pair(int n8, int column) { return column + 8 * n8 + threadIdx.x % 4 * 2; }

// That pair of D.
template <bool WITH_C = true, typename OPERATION, typename ACCUMULATORS, typename... FUSED>
__device__ __forceinline__ Vector<typename OPERATION::OUT, 2> epilogue_pair(const ACCUMULATORS& accumulators,
                                                                            const GemmParams<OPERATION>& gemm, int m64,
                                                                            int n8, int half, int row, int column,
                                                                            FUSED&... fused) {
    typename OPERATION::ACC_ELEMENT left, right;
    accumulators.pair(m64, n8, half, left, right);
    return epilogue_pair<WITH_C>(left, right, gemm, row_of_pair<ACCUMULATORS>(m64, half, row),
                                 column_of_pair(n8, column), fused...);
}

// Most n8 blocks whose operands of an epilogue are in registers at a time.
inline constexpr int LOADED_AHEAD = 4;

// If all columns of the vectors that an epilogue reads are loaded at once, a consumer's thread has at most so many
// registers for them, and so many for accumulators and them: with more, some kernels spill.
inline constexpr int VECTOR_REGISTERS = 64, ACCUMULATOR_AND_VECTOR_REGISTERS = 168;

// Whether what an epilogue reads for all columns of a warpgroup's part of D fits into registers: vectors alone.
template <typename OPERATION, typename ACCUMULATORS>
__device__ constexpr bool reads_all_at_once() {
    using EPILOGUE = typename GemmParams<OPERATION>::EPILOGUE;
    constexpr int OF_VECTORS = EPILOGUE::COLUMN_BYTES * ACCUMULATORS::N8_BLOCKS * 2 / 4;
    constexpr int SETS = OPERATION::PROMOTED ? 2 : 1;
    return EPILOGUE::COLUMN_BYTES >= 0 && ACCUMULATORS::M64_BLOCKS == 1 && OF_VECTORS <= VECTOR_REGISTERS &&
           SETS * ACCUMULATORS::REGISTERS + OF_VECTORS <= ACCUMULATOR_AND_VECTOR_REGISTERS;
}

// Reads an epilogue's operands for a warpgroup's part of D, which begins at (row, column), a few n8 blocks ahead of the
// elements that are computed: loads of the next blocks are under way while these are. SUBTILES are parts of D that are
// computed and stored one after the other. ALL: the operands of all blocks are loaded at once, by `load_first`; else
// every few blocks wait as long as L2 takes.
template <typename OPERATION, typename ACCUMULATORS, typename SUBTILES, bool ALL = false>
struct EpilogueReader {
    using GEMM = GemmParams<OPERATION>;
    using OUT = typename OPERATION::OUT;
    using LOADED = decltype(load_epilogue_pair(GEMM{}, 0, 0));
    static constexpr int N8_BLOCKS = SUBTILES::COLUMNS / 8;  // of a subtile
    static constexpr int TOGETHER = ALL ? ACCUMULATORS::N8_BLOCKS : N8_BLOCKS < LOADED_AHEAD ? N8_BLOCKS : LOADED_AHEAD;
    const GEMM& gemm;
    int row, column;
    LOADED ahead[TOGETHER][2];

    static __device__ __forceinline__ int m64_of(int subtile) { return subtile / SUBTILES::COUNT; }
    static __device__ __forceinline__ int first_of(int subtile) { return subtile % SUBTILES::ACROSS * N8_BLOCKS; }

    // Starts the first loads.
    __device__ __forceinline__ void load_first() { load(0, 0); }

    // Starts loads for blocks of a subtile from its block `begin` on. Inside of D there is no branch for each pair.
    __device__ __forceinline__ void load(int subtile, int begin) {
        const int m64 = m64_of(subtile), first = first_of(subtile) + begin;
        if (row + 64 * (m64 + 1) <= gemm.m && column + 8 * (first + TOGETHER) <= gemm.n) {
            first > 0 ? load_blocks<true, true>(m64, first) : load_blocks<true, false>(m64, first);
        } else {
            first > 0 ? load_blocks<false, true>(m64, first) : load_blocks<false, false>(m64, first);
        }
    }

    // Calls `visit(n8, loaded)` for each block of a subtile, whose first loads are under way, with what is loaded for
    // its two pairs; `visit_two(n8, loaded)` for two of them at a time instead, as far as there are two. Starts loads
    // of the subtile that is visited `next`, or NONE.
    static constexpr int NONE = -1;
    template <typename VISIT_TWO, typename VISIT>
    __device__ __forceinline__ void visit_blocks(int subtile, int next, const VISIT_TWO& visit_two,
                                                 const VISIT& visit) {
        if constexpr (ALL) {
#pragma unroll
            for (int n8 = 0; n8 < N8_BLOCKS; ++n8) visit(n8, &ahead[first_of(subtile) + n8]);
            return;
        }
#pragma unroll
        for (int begin = 0; begin < N8_BLOCKS; begin += TOGETHER) {
            LOADED loaded[TOGETHER][2];
#pragma unroll
            for (int n8 = 0; n8 < TOGETHER; ++n8)
#pragma unroll
                for (int half = 0; half < 2; ++half) loaded[n8][half] = ahead[n8][half];
            if (begin + TOGETHER < N8_BLOCKS) {
                load(subtile, begin + TOGETHER);
            } else if (next != NONE) {
                load(next, 0);
            }
#pragma unroll
            for (int n8 = begin; n8 < begin + TOGETHER && n8 < N8_BLOCKS; n8 += 2) {
                if (n8 + 1 < begin + TOGETHER && n8 + 1 < N8_BLOCKS) {
                    visit_two(n8, &loaded[n8 - begin]);
                } else {
                    visit(n8, &loaded[n8 - begin]);
                }
            }
        }
    }

    // The pairs of a subtile, with that of `next` to come. The epilogue stores its further outputs.
    template <bool WITH_C>
    __device__ __forceinline__ void compute(Vector<OUT, 2> (*pairs)[2], const ACCUMULATORS& accumulators, int subtile,
                                            int next) {
        const auto of_block = [&](int n8, LOADED(*loaded)[2]) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                NoneKept kept;
                pairs[n8][half] = epilogue_pair<WITH_C>(accumulators, gemm, m64_of(subtile), first_of(subtile) + n8,
                                                        half, row, column, (*loaded)[half], kept);
            }
        };
        const auto of_two = [&](int n8, LOADED(*loaded)[2]) {
            of_block(n8, loaded);
            of_block(n8 + 1, loaded + 1);
        };
        visit_blocks(subtile, next, of_two, of_block);
    }

  private:
    // HAS_LEFT: those before were for blocks to the left, in the same rows.
    template <bool WHOLE, bool HAS_LEFT>
    __device__ __forceinline__ void load_blocks(int m64, int first) {
        load_pair<WHOLE, false, HAS_LEFT>(m64, first, 0, 0);
        load_pair<WHOLE, true, HAS_LEFT>(m64, first, 0, 1);
#pragma unroll
        for (int n8 = 1; n8 < TOGETHER; ++n8) {
            load_pair<WHOLE, false, true>(m64, first, n8, 0);
            load_pair<WHOLE, true, true>(m64, first, n8, 1);
        }
    }

    template <bool WHOLE, bool HAS_ABOVE, bool HAS_LEFT>
    __device__ __forceinline__ void load_pair(int m64, int first, int n8, int half) {
        const int at_row = row_of_pair<ACCUMULATORS>(m64, half, row), at_column = column_of_pair(first + n8, column);
        ahead[n8][half] = gemm.template load_beside<2, WHOLE, HAS_ABOVE, HAS_LEFT>(
            ahead[n8][0], ahead[n8 > 0 ? n8 - 1 : TOGETHER - 1][half], at_row, at_column,
            elements_inside<2>(gemm, at_row, at_column));
    }
};

// Stores two neighbouring elements as far as they lie inside D. PAIRS: rows of D are aligned to two elements.
template <bool PAIRS, typename OPERATION>
__device__ __forceinline__ void store_pair(typename OPERATION::ACC_ELEMENT left, typename OPERATION::ACC_ELEMENT right,
                                           const GemmParams<OPERATION>& gemm, int row, int column) {
    if (row >= gemm.m || column >= gemm.n) return;
    Vector<typename OPERATION::OUT, 2> pair;
    if constexpr (GemmParams<OPERATION>::EPILOGUE::FUSED) {
        const auto loaded = load_epilogue_pair(gemm, row, column);
        NoneKept kept;
        pair = epilogue_pair(left, right, gemm, row, column, loaded, kept);
    } else {
        pair = epilogue_pair(left, right, gemm, row, column);
    }
    if (PAIRS && column + 1 < gemm.n) {
        *reinterpret_cast<Vector<typename OPERATION::OUT, 2>*>(element_at<OPERATION>(gemm.d, gemm.ldd, row, column)) =
            pair;
    } else {
        *element_at<OPERATION>(gemm.d, gemm.ldd, row, column) = pair.elements[0];
        if (column + 1 < gemm.n) *element_at<OPERATION>(gemm.d, gemm.ldd, row, column + 1) = pair.elements[1];
    }
}

// Stores a warpgroup's part of D, from (row, column) on.
template <bool PAIRS, typename OPERATION, typename ACCUMULATORS>
__device__ __forceinline__ void store_directly(const ACCUMULATORS& accumulators, const GemmParams<OPERATION>& gemm,
                                               int row, int column) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
#pragma unroll
    for (int m64 = 0; m64 < ACCUMULATORS::M64_BLOCKS; ++m64)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int r = row + 64 * m64 + accumulators.row_of(16 * warp + 8 * half + lane / 4);
#pragma unroll
            for (int n8 = 0; n8 < ACCUMULATORS::N8_BLOCKS; ++n8) {
                const int c = column + 8 * n8 + lane % 4 * 2;
                typename OPERATION::ACC_ELEMENT left, right;
                accumulators.pair(m64, n8, half, left, right);
                store_pair<PAIRS>(left, right, gemm, r, c);
            }
        }
}

}  // namespace warptile
