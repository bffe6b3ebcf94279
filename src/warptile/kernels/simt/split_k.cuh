// simt-split-k: simt-warptile where D has too few tiles to fill the GPU. `splits` blocks share a tile, each with a
// part of K; the last one to finish adds up all partial sums, in the order of K, so that results do not depend on who
// is last.
#pragma once

#include "ptx/memory_order.cuh"
#include "simt/warptile.cuh"

namespace warptile {

// Beside the operands: a slot for each block's partial sums, and a counter of arrivals for each tile. Counters are zero
// when a launch begins and when it ends.
template <typename CONFIG>
struct SimtSplitKParams {
    GemmParams<SimtOperation<CONFIG>> gemm;
    typename CONFIG::ACCUMULATOR* partials;
    unsigned* arrivals;
    int splits;
};

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::BM / CONFIG::WM * (CONFIG::BN / CONFIG::WN) * 32, CONFIG::MIN_BLOCKS)
    simt_split_k(const __grid_constant__ SimtSplitKParams<CONFIG> params) {
    using TILE = WarptileTile<CONFIG>;
    using ACCUMULATOR = typename CONFIG::ACCUMULATOR;
    constexpr int TM = CONFIG::TM, TN = CONFIG::TN, ELEMENTS = TM * TN;
    const auto gemm = params.gemm.values();
    const unsigned splits = params.splits, tile = blockIdx.x / splits, part = blockIdx.x % splits;
    const BlockOrigin origin = BlockOrigin::grouped<CONFIG::BM, CONFIG::BN, CONFIG::GROUP>(gemm.m, gemm.n, tile);
    ACCUMULATOR accumulators[TM][TN] = {};
    multiply_block<CONFIG, true>(accumulators, gemm, origin, part, splits);

    // Element `e` of all threads of a block is contiguous.
    ACCUMULATOR* const of_tile = params.partials + static_cast<long long>(tile) * splits * ELEMENTS * TILE::THREADS;
    ACCUMULATOR* const own = of_tile + part * ELEMENTS * TILE::THREADS + threadIdx.x;
#pragma unroll
    for (int e = 0; e < ELEMENTS; ++e) own[e * TILE::THREADS] = accumulators[e / TN][e % TN];
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) is_last = atom_acq_rel_gpu_inc(params.arrivals + tile, splits - 1) == splits - 1;
    __syncthreads();
    if (!is_last) return;
#pragma unroll
    for (int e = 0; e < ELEMENTS; ++e) accumulators[e / TN][e % TN] = 0;
#pragma unroll 2
    for (unsigned i = 0; i < splits; ++i) {
        const ACCUMULATOR* const other = of_tile + i * ELEMENTS * TILE::THREADS + threadIdx.x;
#pragma unroll
        for (int e = 0; e < ELEMENTS; ++e) accumulators[e / TN][e % TN] += __ldcg(other + e * TILE::THREADS);
    }
    store_registers<TILE, CONFIG::D_WIDTH>(accumulators, gemm, origin.row + TILE::first_row(),
                                           origin.column + TILE::first_column());
}

}  // namespace warptile
