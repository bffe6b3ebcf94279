// mma-final: a ring of stages without a branch in its main loop, fragments that run ahead across stages, blocks in
// groups, D in vectors; the tile sizes are tuned.
#pragma once

#include "tile/mma_epilogue.cuh"
#include "tile/mma_staging.cuh"
#include "tile/raster.cuh"

namespace warptile {

// Where the main loop stands: the tile that is multiplied, and the stages that it is in and that is filled next, by
// their distance from the first stage in bytes. The copies are AHEAD tiles ahead.
template <int STAGES, int AHEAD, int STAGE_BYTES>
struct MmaRing {
    int tile = 0;
    unsigned reading = 0, filling = AHEAD * STAGE_BYTES;

    // Over how many of a tile's STEPS its copies are spread: few where the next tile already waits for them.
    static __device__ constexpr int copy_steps(int steps) { return AHEAD > 1 ? steps - 1 : (steps + 3) / 4; }

    // The stage after the one at `offset`.
    static __device__ __forceinline__ unsigned after(unsigned offset) {
        return offset == (STAGES - 1) * STAGE_BYTES ? 0 : offset + STAGE_BYTES;
    }

    // Starts part `part` of PARTS of the copies of the tile AHEAD further on. With WHOLE that tile is whole: the main
    // loop's body then has no branch.
    template <bool WHOLE, int PARTS, typename STREAM>
    __device__ __forceinline__ void stage_ahead(STREAM& stream, unsigned stages, int part) const {
        if constexpr (WHOLE) {
            stream.template stage_whole<PARTS>(stages + filling, part);
        } else if (part == 0) {
            stream.stage_any(stages + filling, tile + AHEAD);
        }
    }

    // Goes on to the next tile: ends the group of copies, an empty one past the last tile, for the wait counts groups,
    // not tiles; and sees to it that the next tile has arrived, for every thread.
    __device__ __forceinline__ void advance() {
        cp_async_commit_group();
        cp_async_wait_group<AHEAD - 1>();
        __syncthreads();
        reading = after(reading);
        filling = after(filling);
    }
};

// Multiplies ring.tile with two sets of fragments that take turns. The first step's are loaded already; the last step
// loads the first of the next tile.
template <bool WHOLE, typename OPERATION, typename TILE, typename READER, typename STREAM, typename RING>
__device__ __forceinline__ void multiply_by_turns(MmaAccumulators<OPERATION, TILE>& accumulators,
                                                  MmaFragments<OPERATION, TILE> (&fragments)[2], const READER& reader,
                                                  STREAM& stream, unsigned stages, RING& ring) {
    constexpr int STEPS = TILE::BK / OPERATION::STEP;
    constexpr int COPY_STEPS = RING::copy_steps(STEPS);
    static_assert(STEPS % 2 == 0, "the two sets of fragments take turns: an even number of steps");
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        // After the barrier nobody reads the present stage any more: the next copies overwrite it.
        if (step == STEPS - 1) ring.advance();
        // At the end there is no next tile to load from.
        if (WHOLE || step < STEPS - 1 || ring.tile + 1 < stream.tiles_k)
            reader.load(fragments[(step + 1) % 2], stages + ring.reading, (step + 1) % STEPS);
        if (step < COPY_STEPS) ring.template stage_ahead<WHOLE, COPY_STEPS>(stream, stages, step);
        accumulators.multiply(fragments[step % 2]);
    }
    ++ring.tile;
}

// Fragments for warp tiles whose accumulators leave no room for two sets: of B two steps, of A what is multiplied and
// what comes next.
template <typename OPERATION, typename TILE, int TOGETHER>
struct PassingFragments {
    typename OPERATION::WORD a[2][TOGETHER][OPERATION::A_WORDS];
    typename OPERATION::WORD b[2][TILE::WN / 8][OPERATION::B_WORDS];
};

// Multiplies ring.tile with passing fragments of A. B's of the first step and A's first rows are loaded already; the
// last step loads the first of the next tile. It still reads the present stage past the barrier: the stage that is
// filled next is the one before it.
template <bool WHOLE, typename OPERATION, typename TILE, typename READER, typename STREAM, typename RING>
__device__ __forceinline__ void multiply_in_passing(MmaAccumulators<OPERATION, TILE>& accumulators,
                                                    PassingFragments<OPERATION, TILE, READER::TOGETHER_A>& fragments,
                                                    const READER& reader, STREAM& stream, unsigned stages, RING& ring) {
    constexpr int TOGETHER = READER::TOGETHER_A, GROUPS = TILE::WM / 16 / TOGETHER, STEPS = TILE::BK / OPERATION::STEP;
    constexpr int COPY_STEPS = RING::copy_steps(STEPS), LOADS_B = READER::LOADS_B, SPREAD = GROUPS > 1 ? GROUPS - 1 : 1;
    static_assert(GROUPS % 2 == 0, "the two places for rows of A take turns: an even number of groups");
    static_assert(STEPS % 2 == 0, "the two places for B take turns: an even number of steps");
    const unsigned present = stages + ring.reading;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        const bool last = step == STEPS - 1;
        if (last) ring.advance();
        const unsigned following = last ? stages + ring.reading : present;
        // At the end there is no next tile to load from.
        const bool more = WHOLE || !last || ring.tile + 1 < stream.tiles_k;
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            auto& coming = fragments.a[(group + 1) % 2];
            if (group + 1 < GROUPS) {
                reader.load_a(&coming[0][0], present, (group + 1) * TOGETHER, step);
            } else if (more) {
                reader.load_a(&coming[0][0], following, 0, (step + 1) % STEPS);
            }
            if (more) {
#pragma unroll
                for (int load = group * LOADS_B / SPREAD; load < min((group + 1) * LOADS_B / SPREAD, LOADS_B); ++load)
                    reader.load_b(fragments.b[(step + 1) % 2], following, load, (step + 1) % STEPS);
            }
            if (step < COPY_STEPS)
                ring.template stage_ahead<WHOLE, COPY_STEPS * GROUPS>(stream, stages, step * GROUPS + group);
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i)
                accumulators.multiply_row(group * TOGETHER + i, fragments.a[group % 2][i], fragments.b[step % 2]);
        }
    }
    ++ring.tile;
}

template <typename OPERATION, typename TILE, typename ACCESS, int STAGES, int SETS, int GROUP, int MIN_BLOCKS>
__global__ void __launch_bounds__(TILE::THREADS, MIN_BLOCKS)
    mma_final(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
              const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
              long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
              typename OPERATION::SCALE beta) {
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const auto position = grouped_tile<GROUP>(blockIdx.x, tiles_along(m, TILE::BM), tiles_along(n, TILE::BN));
    const int row = position.row * TILE::BM, column = position.column * TILE::BN;
    static_assert(SETS == 1 || SETS == 2, "fragments come in one set or two");
    constexpr int AHEAD = SETS == 2 ? STAGES - 1 : STAGES - 2;
    static_assert(AHEAD >= 1, "a ring has a stage to fill beside those that are read: two with one set of fragments");
    extern __shared__ __align__(128) unsigned char memory[];
    const unsigned stages = shared_address(memory);
    using STREAM = MmaStream<AsyncPacketCopy, OPERATION, TILE, ACCESS, true>;
    using READER = MmaReader<OPERATION, TILE, true>;
    using RING = MmaRing<STAGES, AHEAD, STREAM::STAGE::BYTES>;

    MmaAccumulators<OPERATION, TILE> accumulators;
    accumulators.zero();
    const READER reader;
    STREAM stream(gemm, row, column);
    for (int ahead = 0; ahead < AHEAD; ++ahead) {
        stream.stage_any(stages + ahead * STREAM::STAGE::BYTES, ahead);
        cp_async_commit_group();
    }
    RING ring;
    cp_async_wait_group<AHEAD - 1>();
    __syncthreads();  // the first stage is full
    if constexpr (SETS == 2) {
        MmaFragments<OPERATION, TILE> fragments[2];
        if (stream.tiles_k > 0) reader.load(fragments[0], stages, 0);
#pragma unroll 1
        while (ring.tile + AHEAD < stream.whole_tiles)
            multiply_by_turns<true>(accumulators, fragments, reader, stream, stages, ring);
#pragma unroll 1
        while (ring.tile < stream.tiles_k)
            multiply_by_turns<false>(accumulators, fragments, reader, stream, stages, ring);
    } else {
        PassingFragments<OPERATION, TILE, READER::TOGETHER_A> fragments;
        if (stream.tiles_k > 0) {
            reader.load_b(fragments.b[0], stages, 0);
            reader.load_a(&fragments.a[0][0][0], stages, 0, 0);
        }
#pragma unroll 1
        while (ring.tile + AHEAD < stream.whole_tiles)
            multiply_in_passing<true>(accumulators, fragments, reader, stream, stages, ring);
#pragma unroll 1
        while (ring.tile < stream.tiles_k)
            multiply_in_passing<false>(accumulators, fragments, reader, stream, stages, ring);
    }
    __syncthreads();  // the stages turn into patches
    store_tile<ACCESS::D / static_cast<int>(sizeof(typename OPERATION::OUT))>(
        accumulators, reinterpret_cast<MmaPatch<OPERATION, TILE>*>(memory), gemm, row, column);
}

}  // namespace warptile
