// mma-tma-swizzled: TMA swizzles the rows that it writes, by the same XOR as mma-swizzled, so that ldmatrix has no bank
// conflicts. The swizzle is in the tensor maps and in the addresses of the fragments; nothing else differs from
// mma-tma.
#pragma once

#include "tile/mma_mainloop.cuh"
#include "tile/mma_tma_pipeline.cuh"
#include "tile/raster.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS, CONFIG::MIN_BLOCKS)
    mma_tma_swizzled(const __grid_constant__ MmaTmaParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr int STAGES = CONFIG::STAGES, GROUP = CONFIG::GROUP, D_BYTES = CONFIG::D_BYTES;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    const auto position = grouped_tile<GROUP>(blockIdx.x, tiles_along(gemm.m, TILE::BM), tiles_along(gemm.n, TILE::BN));
    const int row = position.row * TILE::BM, column = position.column * TILE::BN;
    extern __shared__ __align__(1024) unsigned char memory[];  // the XOR takes bits 7 to 9 of the address: eight rows

    MmaAccumulators<OPERATION, TILE> accumulators;
    accumulators.zero();
    const MmaFragmentLoader<OPERATION, TILE, true, false> loader;  // TMA has rounded TF32
    MmaFragments<OPERATION, TILE> fragments[2];
    MmaTmaPipeline<OPERATION, TILE, STAGES, true> pipeline(params, shared_address(memory), row, column, gemm.k);
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
