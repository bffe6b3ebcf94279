// mma-swizzled: an XOR swizzle of the 16-byte chunks of each row in shared memory, with the row's number, so that eight
// rows of one column of chunks are in different banks. No padding, and every row stays in its own 128 bytes.
#pragma once

#include "tile/mma_stage.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS, CONFIG::MIN_BLOCKS)
    mma_swizzled(const __grid_constant__ GemmParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    using ACCESS = typename CONFIG::ACCESS;
    const GemmParams<OPERATION> gemm = params.values();
    const unsigned tiles_n = tiles_along(gemm.n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    using STAGE = MmaStage<OPERATION, TILE, true>;
    __shared__ __align__(128) unsigned char memory[MMA_MEMORY_BYTES<STAGE, OPERATION, TILE>];
    const unsigned stage = shared_address(memory);

    MmaAccumulators<OPERATION, TILE> accumulators;
    accumulators.zero();
    const MmaFragmentLoader<OPERATION, TILE, true> loader;

    for (int k_offset = 0; k_offset < gemm.k; k_offset += TILE::BK) {
        stage_operands<PacketCopy, STAGE, TILE, ACCESS, 8>(stage, gemm, row, column, k_offset);
        __syncthreads();  // the stage is full
        multiply_stage(accumulators, loader, stage);
        __syncthreads();  // the stage may be overwritten
    }
    store_tile<ACCESS::D / int(sizeof(typename OPERATION::OUT))>(
        accumulators, reinterpret_cast<MmaPatch<OPERATION, TILE>*>(memory), gemm, row, column);
}

}  // namespace warptile
