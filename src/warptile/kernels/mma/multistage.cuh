// mma-multistage: a ring of STAGES stages, two sets of fragments, and addresses that only move: what a thread copies
// and reads is worked out before the loop, and inside it pointers advance by constants.
#pragma once

#include "tile/mma_epilogue.cuh"
#include "tile/mma_staging.cuh"

namespace warptile {

// The whole depth of a stage with two sets of fragments: while the tensor core works on one, the other is loaded.
template <typename OPERATION, typename TILE, typename READER>
__device__ __forceinline__ void multiply_stage_overlapped(MmaAccumulators<OPERATION, TILE>& accumulators,
                                                          const READER& reader, unsigned stage) {
    constexpr int STEPS = TILE::BK / OPERATION::STEP;
    static_assert(TILE::BK % OPERATION::STEP == 0, "a stage is a whole number of steps deep");
    MmaFragments<OPERATION, TILE> fragments[2];
    reader.load(fragments[0], stage, 0);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        if (step + 1 < STEPS) reader.load(fragments[(step + 1) % 2], stage, step + 1);
        accumulators.multiply(fragments[step % 2]);
    }
}

template <typename OPERATION, typename TILE, typename ACCESS, int STAGES, int MIN_BLOCKS>
__global__ void __launch_bounds__(TILE::THREADS, MIN_BLOCKS)
    mma_multistage(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
                   const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
                   long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
                   typename OPERATION::SCALE beta) {
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const unsigned tiles_n = tiles_along(n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM, column = blockIdx.x % tiles_n * TILE::BN;
    static_assert(STAGES >= 2, "a ring has a stage to fill beside the one that is read");
    using STREAM = MmaStream<AsyncPacketCopy, OPERATION, TILE, ACCESS, true>;
    constexpr unsigned STAGE_BYTES = STREAM::STAGE::BYTES, LAST = (STAGES - 1) * STAGE_BYTES;
    extern __shared__ __align__(128) unsigned char memory[];
    const unsigned stages = shared_address(memory);

    MmaAccumulators<OPERATION, TILE> accumulators;
    accumulators.zero();
    const MmaReader<OPERATION, TILE, true> reader;
    STREAM stream(gemm, row, column);

    for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
        stream.stage_any(stages + ahead * STAGE_BYTES, ahead);
        cp_async_commit_group();
    }
    unsigned reading = 0, filling = LAST;
    for (int tile = 0; tile < stream.tiles_k; ++tile) {
        cp_async_wait_group<STAGES - 2>();  // this thread's part of `tile` has arrived
        __syncthreads();                    // everybody's has, and nobody reads the stage of `tile` - 1 any more
        stream.stage_any(stages + filling, tile + STAGES - 1);
        cp_async_commit_group();  // empty at the tail: the wait above counts groups, not tiles
        multiply_stage_overlapped(accumulators, reader, stages + reading);
        filling = reading;
        reading = reading == LAST ? 0 : reading + STAGE_BYTES;
    }
    __syncthreads();  // the stages turn into patches
    store_tile<ACCESS::D / int(sizeof(typename OPERATION::OUT))>(
        accumulators, reinterpret_cast<MmaPatch<OPERATION, TILE>*>(memory), gemm, row, column);
}

}  // namespace warptile
