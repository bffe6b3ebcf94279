// mma-split-k: mma-final for float64 where D has too few tiles to fill the GPU. `splits` blocks share a tile, each with
// a part of K; the last one to finish adds up all partial sums, in the order of K, so that results do not depend on who
// is last. A launch takes a batch.
#pragma once

#include "mma/final.cuh"
#include "ptx/griddepcontrol.cuh"
#include "tile/parts_of_k.cuh"

namespace warptile {

// Beside the operands: a slot for each block's partial sums, and a counter of arrivals for each tile. Counters are zero
// when a launch begins and when it ends.
template <typename CONFIG>
struct MmaSplitKParams {
    GemmParams<typename CONFIG::OPERATION> gemm;
    typename CONFIG::OPERATION::ACC_ELEMENT* partials;
    unsigned* arrivals;
    int splits;
    unsigned lets_next_start;  // the next launch may start early
    BatchStrides strides;
};

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS, CONFIG::MIN_BLOCKS)
    mma_split_k(const __grid_constant__ MmaSplitKParams<CONFIG> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    using ELEMENT = typename OPERATION::ACC_ELEMENT;
    using ACCUMULATORS = MmaAccumulators<OPERATION, TILE>;
    static_assert(sizeof(typename OPERATION::REGISTER) == sizeof(ELEMENT), "a register is one sum");
    if (params.lets_next_start) let_next_launch_start();
    const unsigned splits = params.splits;
    const int tiles_m = tiles_along(params.gemm.m, TILE::BM), tiles_n = tiles_along(params.gemm.n, TILE::BN);
    const PartOfTile<CONFIG::BATCHED> own(splits, tiles_m * tiles_n);
    const GemmParams<OPERATION> gemm = matrix_of_batch<CONFIG::BATCHED>(params.gemm, params.strides, own.matrix);
    const auto position = grouped_tile<CONFIG::GROUP>(own.tile, tiles_m, tiles_n);
    const int row = position.row * TILE::BM, column = position.column * TILE::BN;

    // The part begins and ends at a whole K tile, but for the last one's end.
    const unsigned tiles_k = tiles_along(gemm.k, TILE::BK), next = own.part + 1;
    const int begin = static_cast<int>(begin_of_part(tiles_k, own.part, splits)) * TILE::BK;
    const int end = next == splits ? gemm.k : static_cast<int>(begin_of_part(tiles_k, next, splits)) * TILE::BK;
    GemmParams<OPERATION> of_part = gemm;
    of_part.a = gemm.a_at(0, begin);
    of_part.b = gemm.b_at(begin, 0);
    of_part.k = end - begin;
    extern __shared__ __align__(128) unsigned char memory[];  // stages, then patches
    ACCUMULATORS accumulators;
    wait_for_previous_launch();
    multiply_tile<CONFIG>(accumulators, of_part, row, column, shared_address(memory));

    constexpr int COUNT = sizeof(accumulators.at) / sizeof(ELEMENT);
    auto& sums = reinterpret_cast<ELEMENT(&)[COUNT]>(accumulators.at);
    ELEMENT* const slots = params.partials + static_cast<long long>(own.number) * splits * COUNT * TILE::THREADS;
    if (splits > 1 && !add_parts<TILE::THREADS>(sums, slots, params.arrivals + own.number, own.part, splits)) return;
    store_tile<CONFIG::ACCESS::D / static_cast<int>(sizeof(typename OPERATION::OUT))>(
        accumulators, reinterpret_cast<MmaPatch<OPERATION, TILE>*>(memory), gemm, row, column);
}

}  // namespace warptile
