// wmma-final: fragments overlap across stages too, products go in zig-zag order, blocks in groups, D leaves in vectors;
// the tile sizes are tuned.
#pragma once

#include "tile/raster.cuh"
#include "tile/stream.cuh"
#include "tile/vector_epilogue.cuh"

namespace warptile {

// Where the main loop stands: the tile that is multiplied, the stage that it is in, the stage that is filled next.
struct Ring {
    int tile, reading, filling;
};

// Starts the copies of the tile STAGES - 1 further on and closes their group, an empty one past the last tile: the waits
// count groups, not tiles. WHOLE says that that tile is whole: the main loop's body then has no branch.
template <bool WHOLE, int STAGES, typename STREAM, typename MEMORY>
__device__ __forceinline__ void stage_ahead(STREAM& stream, MEMORY& memory, const Ring& ring) {
    if constexpr (WHOLE) {
        stream.stage_whole(memory.stages[ring.filling]);
    } else {
        stream.stage_any(memory.stages[ring.filling], ring.tile + STAGES - 1);
    }
    cp_async_commit_group();
}

// Multiplies ring.tile with two sets of fragments that take turns. The first step's are loaded already; the last step
// loads the first of the next tile.
template <bool WHOLE, bool ZIGZAG, int STAGES, typename OPERATION, typename TILE, typename STREAM, typename MEMORY>
__device__ __forceinline__ void multiply_tile_by_turns(Accumulators<OPERATION, TILE>& accumulators,
                                                       Fragments<OPERATION, TILE> (&fragments)[2], STREAM& stream,
                                                       MEMORY& memory, Ring& ring) {
    constexpr int STEPS = TILE::BK / OPERATION::STEP;
    static_assert(TILE::BK % (2 * OPERATION::STEP) == 0, "the two sets of fragments take turns: an even number of steps");
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        if (step == STEPS - 1) {
            // The next step's fragments are in the next stage: it must have arrived, for every thread. After the
            // barrier nobody reads the present one any more: the next tile's copies may overwrite it.
            // At the end there is no next stage, and the present one is read again, for nothing.
            cp_async_wait_group<STAGES - 2>();
            __syncthreads();
            ring.filling = ring.reading;
            if (ring.tile + 1 < stream.tiles_k) ring.reading = ring.reading + 1 == STAGES ? 0 : ring.reading + 1;
        }
        fragments[(step + 1) % 2].load(memory.stages[ring.reading], (step + 1) % STEPS * OPERATION::STEP);
        if (step == 0) stage_ahead<WHOLE, STAGES>(stream, memory, ring);
        multiply<ZIGZAG>(accumulators, fragments[step % 2]);
    }
    ++ring.tile;
}

// Multiplies ring.tile with one set, for warp tiles whose accumulators leave no room for two: the fragments of B stay
// for a step, those of A pass by, each loaded while the one before it is multiplied.
template <bool WHOLE, bool ZIGZAG, int STAGES, typename OPERATION, typename TILE, typename STREAM, typename MEMORY>
__device__ __forceinline__ void multiply_tile_in_passing(Accumulators<OPERATION, TILE>& accumulators, STREAM& stream,
                                                         MEMORY& memory, Ring& ring) {
    constexpr int ROWS = Accumulators<OPERATION, TILE>::ROWS, COLUMNS = Accumulators<OPERATION, TILE>::COLUMNS;
    static_assert(TILE::BK % OPERATION::STEP == 0, "a stage is a whole number of fragments deep");
    const auto& stage = memory.stages[ring.reading];
    cp_async_wait_group<STAGES - 2>();  // this thread's part of the tile has arrived
    __syncthreads();                    // everybody's has, and nobody reads the stage before it any more
#pragma unroll
    for (int depth = 0; depth < TILE::BK; depth += OPERATION::STEP) {
        typename OPERATION::A a[2];
        typename OPERATION::B b[COLUMNS];
        load_a(a[0], stage, 0, depth);
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) load_b(b[j], stage, j, depth);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            if (i + 1 < ROWS) load_a(a[(i + 1) % 2], stage, i + 1, depth);
            multiply_row<ZIGZAG>(accumulators, i, a[i % 2], b);
            if (depth == 0 && i == 0) stage_ahead<WHOLE, STAGES>(stream, memory, ring);
        }
    }
    ring.filling = ring.reading;
    ring.reading = ring.reading + 1 == STAGES ? 0 : ring.reading + 1;
    ++ring.tile;
}

template <typename OPERATION, typename TILE, typename WIDTHS, int PAD, int STAGES, int SETS, int GROUP, bool ZIGZAG,
          int MIN_BLOCKS>
__global__ void __launch_bounds__(TILE::THREADS, MIN_BLOCKS)
    wmma_final(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
               const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
               long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
               typename OPERATION::SCALE beta) {
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const auto position = grouped_tile<GROUP>(blockIdx.x, tiles_along(m, TILE::BM), tiles_along(n, TILE::BN));
    const int row = position.row * TILE::BM, column = position.column * TILE::BN;
    static_assert(STAGES >= 2, "a ring has a stage to fill beside the one that is read");
    extern __shared__ __align__(128) unsigned char dynamic_memory[];
    using MEMORY = BlockMemory<OPERATION, TILE, PAD, STAGES, RowPatch<OPERATION, TILE::WN>>;
    auto& memory = *reinterpret_cast<MEMORY*>(dynamic_memory);

    Accumulators<OPERATION, TILE> accumulators;
    accumulators.zero();

    BlockStream<AsyncCopy, OPERATION, TILE, WIDTHS, PAD> stream(gemm, row, column);
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
        stream.stage_any(memory.stages[ahead], ahead);
        cp_async_commit_group();
    }
    Ring ring{0, 0, STAGES - 1};
    static_assert(SETS == 1 || SETS == 2, "fragments come in one set or two");
    if constexpr (SETS == 2) {
        Fragments<OPERATION, TILE> fragments[2];
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();  // the first stage is full
        fragments[0].load(memory.stages[0], 0);
#pragma unroll 1
        while (ring.tile + STAGES - 1 < stream.whole_tiles)
            multiply_tile_by_turns<true, ZIGZAG, STAGES>(accumulators, fragments, stream, memory, ring);
#pragma unroll 1
        while (ring.tile < stream.tiles_k)
            multiply_tile_by_turns<false, ZIGZAG, STAGES>(accumulators, fragments, stream, memory, ring);
    } else {
#pragma unroll 1
        while (ring.tile + STAGES - 1 < stream.whole_tiles)
            multiply_tile_in_passing<true, ZIGZAG, STAGES>(accumulators, stream, memory, ring);
#pragma unroll 1
        while (ring.tile < stream.tiles_k)
            multiply_tile_in_passing<false, ZIGZAG, STAGES>(accumulators, stream, memory, ring);
    }
    __syncthreads();  // the stages turn into patches
    store_rows<WIDTHS::D>(accumulators, memory.patches, gemm, row, column);
}

}  // namespace warptile
