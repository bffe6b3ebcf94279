// mma-multistage: a pipeline of STAGES stages, two sets of fragments, and addresses that only move: what a thread
// copies and reads is worked out before the loop, and inside it pointers advance by constants.
#pragma once

#include "tile/mma_epilogue.cuh"
#include "tile/mma_staging.cuh"

namespace warptile {

// All k-blocks of a stage with two sets of fragments: while the tensor core works on one, the other is loaded.
template <typename OPERATION, typename TILE, typename LOADER>
__device__ __forceinline__ void multiply_stage_overlapped(MmaAccumulators<OPERATION, TILE>& accumulators,
                                                          const LOADER& loader, unsigned stage) {
    constexpr int K_BLOCKS = TILE::BK / OPERATION::K_BLOCK;
    static_assert(TILE::BK % OPERATION::K_BLOCK == 0, "a stage is a whole number of k-blocks deep");
    MmaFragments<OPERATION, TILE> fragments[2];
    loader.load(fragments[0], stage, 0);
#pragma unroll
    for (int k_block = 0; k_block < K_BLOCKS; ++k_block) {
        if (k_block + 1 < K_BLOCKS) loader.load(fragments[(k_block + 1) % 2], stage, k_block + 1);
        accumulators.multiply(fragments[k_block % 2]);
    }
}

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS, CONFIG::MIN_BLOCKS)
    mma_multistage(const __grid_constant__ GemmParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    using ACCESS = typename CONFIG::ACCESS;
    constexpr int STAGES = CONFIG::STAGES;
    const GemmParams<OPERATION> gemm = params.values();
    const unsigned tiles_n = tiles_along(gemm.n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    static_assert(STAGES >= 2, "a pipeline has a stage to fill beside the one that is read");
    using ITERATOR = MmaTileIterator<AsyncPacketCopy, OPERATION, TILE, ACCESS, true>;
    constexpr unsigned STAGE_BYTES = ITERATOR::STAGE::BYTES, LAST = (STAGES - 1) * STAGE_BYTES;
    extern __shared__ __align__(128) unsigned char memory[];
    const unsigned stages = shared_address(memory);

    MmaAccumulators<OPERATION, TILE> accumulators;
    accumulators.zero();
    const MmaFragmentLoader<OPERATION, TILE, true> loader;
    ITERATOR iterator(gemm, row, column);

    for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
        iterator.stage_any(stages + ahead * STAGE_BYTES, ahead);
        cp_async_commit_group();
    }
    unsigned reading = 0, filling = LAST;
    for (int tile = 0; tile < iterator.tiles_k; ++tile) {
        cp_async_wait_group<STAGES - 2>();  // this thread's part of `tile` has arrived
        __syncthreads();  // all threads' parts have, and no thread reads the stage of `tile` - 1 any more
        iterator.stage_any(stages + filling, tile + STAGES - 1);
        cp_async_commit_group();  // empty at the tail: the wait above counts groups, not tiles
        multiply_stage_overlapped(accumulators, loader, stages + reading);
        filling = reading;
        reading = reading == LAST ? 0 : reading + STAGE_BYTES;
    }
    __syncthreads();  // the memory of the stages becomes that of the patches
    store_tile<ACCESS::D / int(sizeof(typename OPERATION::OUT))>(
        accumulators, reinterpret_cast<MmaPatch<OPERATION, TILE>*>(memory), gemm, row, column);
}

}  // namespace warptile
