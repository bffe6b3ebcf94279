// mma-final: a ring of stages without a branch in its main loop, fragments that run ahead across stages, blocks in
// groups, D in vectors; the tile sizes are tuned.
#pragma once

#include "tile/mma_epilogue.cuh"
#include "tile/mma_staging.cuh"
#include "tile/raster.cuh"

namespace warptile {

// Where the main loop stands: the tile that is multiplied, and the stages that it is in and that is filled next, by
// their distance from the first stage in bytes.
template <int STAGES, int STAGE_BYTES>
struct MmaRing {
    int tile = 0;
    unsigned reading = 0, filling = (STAGES - 1) * STAGE_BYTES;

    // Past the present tile: its stage is filled next.
    __device__ __forceinline__ void advance() {
        filling = reading;
        reading = reading == (STAGES - 1) * STAGE_BYTES ? 0 : reading + STAGE_BYTES;
    }
};

// Starts the copies of the tile STAGES - 1 further on and closes their group, an empty one past the last tile: the waits
// count groups, not tiles. WHOLE says that that tile is whole: the main loop's body then has no branch.
template <bool WHOLE, int STAGES, typename STREAM, typename RING>
__device__ __forceinline__ void stage_ahead(STREAM& stream, unsigned stages, const RING& ring) {
    if constexpr (WHOLE) {
        stream.stage_whole(stages + ring.filling);
    } else {
        stream.stage_any(stages + ring.filling, ring.tile + STAGES - 1);
    }
    cp_async_commit_group();
}

// Multiplies ring.tile with two sets of fragments that take turns. The first step's are loaded already; the last step
// loads the first of the next tile.
template <bool WHOLE, int STAGES, typename OPERATION, typename TILE, typename READER, typename STREAM, typename RING>
__device__ __forceinline__ void multiply_by_turns(MmaAccumulators<OPERATION, TILE>& accumulators,
                                                  MmaFragments<OPERATION, TILE> (&fragments)[2], const READER& reader,
                                                  STREAM& stream, unsigned stages, RING& ring) {
    constexpr int STEPS = TILE::BK / OPERATION::STEP;
    static_assert(STEPS % 2 == 0, "the two sets of fragments take turns: an even number of steps");
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        if (step == STEPS - 1) {
            // The next step's fragments are in the next stage: it must have arrived, for every thread. After the
            // barrier nobody reads the present one any more: the next tile's copies may overwrite it.
            cp_async_wait_group<STAGES - 2>();
            __syncthreads();
            ring.advance();
        }
        // At the end there is no next tile, and what is loaded is not used.
        if (WHOLE || step < STEPS - 1 || ring.tile + 1 < stream.tiles_k)
            reader.load(fragments[(step + 1) % 2], stages + ring.reading, (step + 1) % STEPS);
        if (step == 0) stage_ahead<WHOLE, STAGES>(stream, stages, ring);
        accumulators.multiply(fragments[step % 2]);
    }
    ++ring.tile;
}

// Multiplies ring.tile with one set, for warp tiles whose accumulators leave no room for two: the fragments of B stay
// for a step, those of A pass by, each loaded while the one before it is multiplied.
template <bool WHOLE, int STAGES, typename OPERATION, typename TILE, typename READER, typename STREAM, typename RING>
__device__ __forceinline__ void multiply_in_passing(MmaAccumulators<OPERATION, TILE>& accumulators, const READER& reader,
                                                    STREAM& stream, unsigned stages, RING& ring) {
    using WORD = typename OPERATION::WORD;
    constexpr int TOGETHER = READER::TOGETHER_A, GROUPS = TILE::WM / 16 / TOGETHER;
    cp_async_wait_group<STAGES - 2>();  // this thread's part of the tile has arrived
    __syncthreads();                    // everybody's has, and nobody reads the stage before it any more
#pragma unroll
    for (int step = 0; step < TILE::BK / OPERATION::STEP; ++step) {
        WORD a[2][TOGETHER][OPERATION::A_WORDS], b[TILE::WN / 8][OPERATION::B_WORDS];
        reader.load_a(&a[0][0][0], stages + ring.reading, 0, step);
        reader.load_b(b, stages + ring.reading, step);
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            if (group + 1 < GROUPS)
                reader.load_a(&a[(group + 1) % 2][0][0], stages + ring.reading, (group + 1) * TOGETHER, step);
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) accumulators.multiply_row(group * TOGETHER + i, a[group % 2][i], b);
            if (step == 0 && group == 0) stage_ahead<WHOLE, STAGES>(stream, stages, ring);
        }
    }
    ring.advance();
    ++ring.tile;
}

template <typename OPERATION, typename TILE, typename ACCESS, int STAGES, int SETS, int GROUP, int MIN_BLOCKS>
__global__ void __launch_bounds__(TILE::THREADS, MIN_BLOCKS)
    mma_final(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
              const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
              long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
              typename OPERATION::SCALE beta) {
    const MmaGemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const auto position = grouped_tile<GROUP>(blockIdx.x, tiles_along(m, TILE::BM), tiles_along(n, TILE::BN));
    const int row = position.row * TILE::BM, column = position.column * TILE::BN;
    static_assert(STAGES >= 2, "a ring has a stage to fill beside the one that is read");
    static_assert(SETS == 1 || SETS == 2, "fragments come in one set or two");
    extern __shared__ __align__(128) unsigned char memory[];
    const unsigned stages = shared_address(memory);
    using STREAM = MmaStream<AsyncPacketCopy, OPERATION, TILE, ACCESS, true>;
    constexpr int STAGE_BYTES = STREAM::STAGE::BYTES;

    MmaAccumulators<OPERATION, TILE> accumulators;
    accumulators.zero();
    const MmaReader<OPERATION, TILE, true> reader;
    STREAM stream(gemm, row, column);
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
        stream.stage_any(stages + ahead * STAGE_BYTES, ahead);
        cp_async_commit_group();
    }
    MmaRing<STAGES, STAGE_BYTES> ring;
    if constexpr (SETS == 2) {
        MmaFragments<OPERATION, TILE> fragments[2];
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();  // the first stage is full
        if (stream.tiles_k > 0) reader.load(fragments[0], stages, 0);
#pragma unroll 1
        while (ring.tile + STAGES - 1 < stream.whole_tiles)
            multiply_by_turns<true, STAGES>(accumulators, fragments, reader, stream, stages, ring);
#pragma unroll 1
        while (ring.tile < stream.tiles_k)
            multiply_by_turns<false, STAGES>(accumulators, fragments, reader, stream, stages, ring);
    } else {
#pragma unroll 1
        while (ring.tile + STAGES - 1 < stream.whole_tiles)
            multiply_in_passing<true, STAGES>(accumulators, reader, stream, stages, ring);
#pragma unroll 1
        while (ring.tile < stream.tiles_k)
            multiply_in_passing<false, STAGES>(accumulators, reader, stream, stages, ring);
    }
    __syncthreads();  // the stages turn into patches
    store_tile<ACCESS::D / static_cast<int>(sizeof(typename OPERATION::OUT))>(
        accumulators, reinterpret_cast<MmaPatch<OPERATION, TILE>*>(memory), gemm, row, column);
}

}  // namespace warptile
