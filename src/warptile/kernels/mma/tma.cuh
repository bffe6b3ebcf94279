// mma-tma: one thread asks TMA for whole tiles; they arrive in shared memory in rows of 128 bytes, and an mbarrier
// counts their bytes. No other thread copies anything, and no edge of a matrix needs a predicate.
#pragma once

#include "tile/mma_mainloop.cuh"
#include "tile/mma_tma_pipeline.cuh"
#include "tile/raster.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS, CONFIG::MIN_BLOCKS)
    mma_tma(const __grid_constant__ MmaTmaParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr int STAGES = CONFIG::STAGES, GROUP = CONFIG::GROUP, D_BYTES = CONFIG::D_BYTES;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    const auto position = grouped_tile<GROUP>(blockIdx.x, tiles_along(gemm.m, TILE::BM), tiles_along(gemm.n, TILE::BN));
    const int row = position.row * TILE::BM, column = position.column * TILE::BN;
    extern __shared__ __align__(1024) unsigned char memory[];

    MmaAccumulators<OPERATION, TILE> accumulators;
    accumulators.zero();
    const MmaFragmentLoader<OPERATION, TILE, false, false> loader;  // TMA has rounded TF32
    MmaFragments<OPERATION, TILE> fragments[2];
    MmaTmaPipeline<OPERATION, TILE, STAGES, false> pipeline(params, shared_address(memory), row, column, gemm.k);
    pipeline.start();
    if (pipeline.tiles_k > 0) loader.load(fragments[0], pipeline.stages, 0);
#pragma unroll 1
    while (pipeline.tile < pipeline.tiles_k)
        multiply_double_buffered<false>(accumulators, fragments, loader, pipeline, pipeline.stages, pipeline);
    // Behind the last tile's barrier no thread reads a stage any more: their memory becomes that of the patches.
    store_tile<D_BYTES / int(sizeof(typename OPERATION::OUT))>(
        accumulators, reinterpret_cast<MmaPatch<OPERATION, TILE>*>(memory), gemm, row, column);
}

}  // namespace warptile
