// mma-swizzled: the 16-byte chunks of each row in shared memory change places by an XOR with the row, so that eight
// rows of one column of chunks lie in different banks. No padding, and every row stays in its own 128 bytes.
#pragma once

#include "tile/mma_stage.cuh"

namespace warptile {

template <typename OPERATION, typename TILE, typename ACCESS, int MIN_BLOCKS>
__global__ void __launch_bounds__(TILE::THREADS, MIN_BLOCKS)
    mma_swizzled(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
                 const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
                 long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
                 typename OPERATION::SCALE beta) {
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const unsigned tiles_n = tiles_along(n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    using STAGE = MmaStage<OPERATION, TILE, true>;
    __shared__ __align__(128) unsigned char memory[MMA_MEMORY_BYTES<STAGE, OPERATION, TILE>];
    const unsigned stage = shared_address(memory);

    MmaAccumulators<OPERATION, TILE> accumulators;
    accumulators.zero();
    const MmaReader<OPERATION, TILE, true> reader;

    for (int depth = 0; depth < gemm.k; depth += TILE::BK) {
        stage_operands<PacketCopy, STAGE, TILE, ACCESS, 8>(stage, gemm, row, column, depth);
        __syncthreads();  // the stage is full
        multiply_stage(accumulators, reader, stage);
        __syncthreads();  // the stage may be overwritten
    }
    store_tile<ACCESS::D / int(sizeof(typename OPERATION::OUT))>(
        accumulators, reinterpret_cast<MmaPatch<OPERATION, TILE>*>(memory), gemm, row, column);
}

}  // namespace warptile
