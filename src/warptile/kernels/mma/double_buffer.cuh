// mma-double-buffer: two stages. cp.async fills one, bypassing registers, while the warps multiply the other.
#pragma once

#include "tile/mma_stage.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS, CONFIG::MIN_BLOCKS)
    mma_double_buffer(const __grid_constant__ GemmParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    using ACCESS = typename CONFIG::ACCESS;
    const GemmParams<OPERATION> gemm = params.values();
    const unsigned tiles_n = tiles_along(gemm.n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    using STAGE = MmaStage<OPERATION, TILE, true>;
    extern __shared__ __align__(128) unsigned char memory[];  // two stages: may be more than 48 KB
    const unsigned stages = shared_address(memory);

    MmaAccumulators<OPERATION, TILE> accumulators;
    accumulators.zero();
    const MmaFragmentLoader<OPERATION, TILE, true> loader;

    const int tiles_k = tiles_along(gemm.k, TILE::BK);
    if (tiles_k > 0) stage_operands<AsyncPacketCopy, STAGE, TILE, ACCESS, 8>(stages, gemm, row, column, 0);
    cp_async_commit_group();
    for (int tile = 0; tile < tiles_k; ++tile) {
        cp_async_wait_group<0>();  // this thread's part of `tile` has arrived
        __syncthreads();           // all threads' parts have, and no thread reads the other stage any more
        const int next = tile + 1;
        if (next < tiles_k)
            stage_operands<AsyncPacketCopy, STAGE, TILE, ACCESS, 8>(stages + next % 2 * STAGE::BYTES, gemm, row, column,
                                                                    next * TILE::BK);
        cp_async_commit_group();
        multiply_stage(accumulators, loader, stages + tile % 2 * STAGE::BYTES);
    }
    __syncthreads();  // the memory of the stages becomes that of the patches
    store_tile<ACCESS::D / int(sizeof(typename OPERATION::OUT))>(
        accumulators, reinterpret_cast<MmaPatch<OPERATION, TILE>*>(memory), gemm, row, column);
}

}  // namespace warptile
