// simt-split-k: simt-warptile for D with few tiles, and for any layout of A and D. `splits` blocks share a tile, each
// with a part of K; the last one to finish adds up all partial sums, in the order of K, so that results do not depend
// on who is last. A launch takes a batch.
#pragma once

#include "ptx/griddepcontrol.cuh"
#include "simt/warptile.cuh"

namespace warptile {

// Beside the operands: a slot for each block's partial sums, and a counter of arrivals for each tile. Counters are zero
// when a launch begins and when it ends.
template <typename CONFIG>
struct SimtSplitKParams {
    GemmParams<SwappableOperation<CONFIG>> gemm;
    typename CONFIG::ACCUMULATOR* partials;
    unsigned* arrivals;
    int splits;
    unsigned lets_next_start;  // the next launch may start early
    BatchStrides strides;
};

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::BM / CONFIG::WM * (CONFIG::BN / CONFIG::WN) * 32, CONFIG::MIN_BLOCKS)
    simt_split_k(const __grid_constant__ SimtSplitKParams<CONFIG> params) {
    using TILE = WarptileTile<CONFIG>;
    using ACCUMULATOR = typename CONFIG::ACCUMULATOR;
    constexpr int TM = CONFIG::TM, TN = CONFIG::TN;
    if (params.lets_next_start) let_next_launch_start();
    const unsigned splits = params.splits;
    const PartOfTile<CONFIG::BATCHED> own(
        splits, tiles_along(params.gemm.m, CONFIG::BM) * tiles_along(params.gemm.n, CONFIG::BN));
    const auto gemm = matrix_of_batch<CONFIG::BATCHED>(params.gemm, params.strides, own.matrix);
    const BlockOrigin origin = BlockOrigin::grouped<CONFIG::BM, CONFIG::BN, CONFIG::GROUP>(gemm.m, gemm.n, own.tile);
    ACCUMULATOR accumulators[TM][TN] = {};
    wait_for_previous_launch();
    multiply_block<CONFIG, true>(accumulators, gemm, origin, own.part, splits);

    ACCUMULATOR* const slots = params.partials + static_cast<long long>(own.number) * splits * TM * TN * TILE::THREADS;
    auto& sums = reinterpret_cast<ACCUMULATOR(&)[TM * TN]>(accumulators);
    if (splits > 1 && !add_parts<TILE::THREADS>(sums, slots, params.arrivals + own.number, own.part, splits)) return;
    store_block<CONFIG>(accumulators, gemm, origin);
}

}  // namespace warptile
