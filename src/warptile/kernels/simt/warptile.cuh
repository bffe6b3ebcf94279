// simt-warptile: three levels of tiles (block, warp, registers) on CUDA cores. A thread keeps TM x TN elements of D
// in registers and reads TM + TN operands for TM * TN multiply-adds; shared memory holds STAGES tiles, filled by
// cp.async while earlier ones are used; fragments are read one k ahead.
#pragma once

#include "simt/operation.cuh"
#include "simt/register_tile.cuh"
#include "simt/operand_staging.cuh"
#include "tile/batch.cuh"
#include "tile/parts_of_k.cuh"

namespace warptile {

// accumulators += a * b, every element of one fragment with every element of the other. Odd columns run backwards, so
// that two multiply-adds in a row share an operand, which the register file then need not deliver twice.
template <typename ACCUMULATOR, int TM, int TN>
__device__ __forceinline__ void outer_product(ACCUMULATOR (&accumulators)[TM][TN], const ACCUMULATOR (&a)[TM],
                                              const ACCUMULATOR (&b)[TN]) {
#pragma unroll
    for (int j = 0; j < TN; ++j)
#pragma unroll
        for (int step = 0; step < TM; ++step) {
            const int i = j % 2 ? TM - 1 - step : step;
            accumulators[i][j] += a[i] * b[j];
        }
}

template <typename CONFIG>
using WarptileTile =
    RegisterTile<typename CONFIG::ACCUMULATOR, CONFIG::BM, CONFIG::BN, CONFIG::WM, CONFIG::WN, CONFIG::TM, CONFIG::TN>;

// Adds the products of a block's tile to `accumulators`: along all of K or, if IN_PARTS, along part `part` of `parts`.
template <typename CONFIG, bool IN_PARTS, typename GEMM>
__device__ __forceinline__ void multiply_block(typename CONFIG::ACCUMULATOR (&accumulators)[CONFIG::TM][CONFIG::TN],
                                               const GEMM& gemm, const BlockOrigin& origin, int part, int parts) {
    using ELEMENT = typename CONFIG::ELEMENT;
    using ACCUMULATOR = typename CONFIG::ACCUMULATOR;
    constexpr int BK = CONFIG::BK, TM = CONFIG::TM, TN = CONFIG::TN, STAGES = CONFIG::STAGES;
    using TILE = WarptileTile<CONFIG>;
    using A_OPERAND = typename SelectOperand<!CONFIG::A_COLUMN_MAJOR, ELEMENT, ACCUMULATOR, CONFIG::BM, BK,
                                             TILE::THREADS, CONFIG::A_WIDTH>::type;
    using B_OPERAND = typename SelectOperand<CONFIG::B_COLUMN_MAJOR, ELEMENT, ACCUMULATOR, CONFIG::BN, BK,
                                             TILE::THREADS, CONFIG::B_WIDTH>::type;
    constexpr int STAGE = A_OPERAND::ELEMENTS + B_OPERAND::ELEMENTS;
    static_assert(STAGES >= 2, "one stage is filled while another is used");
    static_assert(BK % 2 == 0, "fragments alternate between two sets of registers");

    extern __shared__ __align__(128) unsigned char shared_bytes[];  // STAGES times A's tile and B's
    ACCUMULATOR* const stages = reinterpret_cast<ACCUMULATOR*>(shared_bytes);

    // The ragged tile comes first: all the others are whole, and the mainloop needs no predicates.
    const int all_tiles = tiles_along(gemm.k, BK), ragged = gemm.k - (all_tiles - 1) * BK;
    const int begin = IN_PARTS ? begin_of_part(all_tiles, part, parts) : 0;
    const int tiles = (IN_PARTS ? begin_of_part(all_tiles, part + 1, parts) : all_tiles) - begin;
    const int first = begin == 0 ? ragged : BK;
    const long long skipped = begin == 0 ? 0 : ragged + (begin - 1) * static_cast<long long>(BK);
    A_OPERAND a_operand(gemm.a + (CONFIG::A_COLUMN_MAJOR ? skipped * gemm.lda : skipped), gemm.lda, origin.row, gemm.m);
    B_OPERAND b_operand(gemm.b + (CONFIG::B_COLUMN_MAJOR ? skipped : skipped * gemm.ldb), gemm.ldb, origin.column,
                        gemm.n);
    if (tiles > 0) {
        a_operand.template stage<false>(stages, first);
        b_operand.template stage<false>(stages + A_OPERAND::ELEMENTS, first);
    }
    commit_copies();
#pragma unroll
    for (int tile = 1; tile < STAGES - 1; ++tile) {
        if (tile < tiles) {
            a_operand.template stage<true>(stages + tile * STAGE, BK);
            b_operand.template stage<true>(stages + tile * STAGE + A_OPERAND::ELEMENTS, BK);
        }
        commit_copies();
    }
    wait_for_copies<STAGES - 2>();
    __syncthreads();

    // Where this thread reads the tile in use, and the stage that is filled next.
    const ACCUMULATOR* a_read = stages + TILE::first_row();
    const ACCUMULATOR* b_read = stages + A_OPERAND::ELEMENTS + TILE::first_column();
    ACCUMULATOR* write = stages + (STAGES - 1) * STAGE;
    int reading = 0, writing = STAGES - 1;

    ACCUMULATOR a_fragment[2][TM], b_fragment[2][TN];
    if (tiles > 0) {
        TILE::template load<TILE::LANES_M>(a_fragment[0], a_read);
        TILE::template load<TILE::LANES_N>(b_fragment[0], b_read);
    }
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int l = 0; l < BK; ++l) {
            const int now = l % 2, next = 1 - now;
            if (l + 1 < BK) {
                TILE::template load<TILE::LANES_M>(a_fragment[next], a_read + (l + 1) * A_OPERAND::PITCH);
                TILE::template load<TILE::LANES_N>(b_fragment[next], b_read + (l + 1) * B_OPERAND::PITCH);
            } else if (tile + 1 < tiles) {
                // All fragments of this tile are in registers: past the barrier its stage may be overwritten, and
                // the next tile has arrived.
                wait_for_copies<STAGES - 2>();
                __syncthreads();
                const int step = reading + 1 == STAGES ? (1 - STAGES) * STAGE : STAGE;
                reading = reading + 1 == STAGES ? 0 : reading + 1;
                a_read += step;
                b_read += step;
                TILE::template load<TILE::LANES_M>(a_fragment[next], a_read);
                TILE::template load<TILE::LANES_N>(b_fragment[next], b_read);
            }
            if (l == 0) {
                if (tile + STAGES - 1 < tiles) {
                    a_operand.template stage<true>(write, BK);
                    b_operand.template stage<true>(write + A_OPERAND::ELEMENTS, BK);
                    write += writing + 1 == STAGES ? (1 - STAGES) * STAGE : STAGE;
                    writing = writing + 1 == STAGES ? 0 : writing + 1;
                }
                commit_copies();  // an empty group at the end, so that the count of groups still holds
            }
            outer_product(accumulators, a_fragment[now], b_fragment[now]);
        }
    }
}

// Stores a block's tile.
template <typename CONFIG, typename GEMM>
__device__ __forceinline__ void store_block(const typename CONFIG::ACCUMULATOR (&accumulators)[CONFIG::TM][CONFIG::TN],
                                            const GEMM& gemm, const BlockOrigin& origin) {
    using TILE = WarptileTile<CONFIG>;
    if constexpr (CONFIG::D_WIDTH < TILE::PIECE) {
        extern __shared__ __align__(128) unsigned char shared_bytes[];
        exchange_and_store<TILE>(accumulators, gemm, origin.row, origin.column,
                                 reinterpret_cast<typename CONFIG::ACCUMULATOR*>(shared_bytes));
    } else {
        store_registers<TILE, CONFIG::D_WIDTH>(accumulators, gemm, origin.row + TILE::first_row(),
                                               origin.column + TILE::first_column());
    }
}

// What the kernel takes. A launch takes a batch.
template <typename CONFIG>
struct SimtWarptileParams {
    GemmParams<SimtOperation<CONFIG>> gemm;
    BatchStrides strides;
};

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::BM / CONFIG::WM * (CONFIG::BN / CONFIG::WN) * 32, CONFIG::MIN_BLOCKS)
    simt_warptile(const __grid_constant__ SimtWarptileParams<CONFIG> params) {
    const PartOfTile<CONFIG::BATCHED> own(
        1, tiles_along(params.gemm.m, CONFIG::BM) * tiles_along(params.gemm.n, CONFIG::BN));
    const auto gemm = matrix_of_batch<CONFIG::BATCHED>(params.gemm, params.strides, own.matrix);
    const BlockOrigin origin = BlockOrigin::grouped<CONFIG::BM, CONFIG::BN, CONFIG::GROUP>(gemm.m, gemm.n, own.tile);
    typename CONFIG::ACCUMULATOR accumulators[CONFIG::TM][CONFIG::TN] = {};
    multiply_block<CONFIG, false>(accumulators, gemm, origin, 0, 1);
    store_block<CONFIG>(accumulators, gemm, origin);
}

}  // namespace warptile
