// wmma-final: fragments are double-buffered across stages too, MMAs run in zig-zag order, blocks are rasterized in
// groups, D is stored in vectors; the tile sizes are tuned.
#pragma once

#include "tile/raster.cuh"
#include "tile/wmma_tile_iterator.cuh"
#include "tile/wmma_vector_epilogue.cuh"

namespace warptile {

// The state of the mainloop: the tile that is multiplied, the stage that it is in, the stage that is filled next.
struct MainloopState {
    int tile, reading, filling;
};

// Starts the copies of the tile STAGES - 1 further on and closes their group, an empty one past the last tile: the
// waits count groups, not tiles. WHOLE says that that tile is whole: the mainloop's body then has no branch.
template <bool WHOLE, int STAGES, typename ITERATOR, typename MEMORY>
__device__ __forceinline__ void stage_ahead(ITERATOR& iterator, MEMORY& memory, const MainloopState& state) {
    if constexpr (WHOLE) {
        iterator.stage_whole(memory.stages[state.filling]);
    } else {
        iterator.stage_any(memory.stages[state.filling], state.tile + STAGES - 1);
    }
    cp_async_commit_group();
}

// Multiplies state.tile with two sets of fragments that alternate. The first k-block's are loaded already; the last
// k-block loads the first of the next tile.
template <bool WHOLE, bool ZIGZAG, int STAGES, typename OPERATION, typename TILE, typename ITERATOR, typename MEMORY>
__device__ __forceinline__ void multiply_tile_double_buffered(Accumulators<OPERATION, TILE>& accumulators,
                                                              Fragments<OPERATION, TILE> (&fragments)[2],
                                                              ITERATOR& iterator, MEMORY& memory,
                                                              MainloopState& state) {
    constexpr int K_BLOCKS = TILE::BK / OPERATION::K_BLOCK;
    static_assert(TILE::BK % (2 * OPERATION::K_BLOCK) == 0,
                  "the two sets of fragments alternate: an even number of k-blocks");
#pragma unroll
    for (int k_block = 0; k_block < K_BLOCKS; ++k_block) {
        if (k_block == K_BLOCKS - 1) {
            // The next k-block's fragments are in the next stage: it must have arrived, for every thread. After the
            // barrier no thread reads the present one any more: the next tile's copies may overwrite it.
            // At the end there is no next stage, and the present one is read again, without effect.
            cp_async_wait_group<STAGES - 2>();
            __syncthreads();
            state.filling = state.reading;
            if (state.tile + 1 < iterator.tiles_k) state.reading = state.reading + 1 == STAGES ? 0 : state.reading + 1;
        }
        fragments[(k_block + 1) % 2].load(memory.stages[state.reading], (k_block + 1) % K_BLOCKS * OPERATION::K_BLOCK);
        if (k_block == 0) stage_ahead<WHOLE, STAGES>(iterator, memory, state);
        multiply<ZIGZAG>(accumulators, fragments[k_block % 2]);
    }
    ++state.tile;
}

// Multiplies state.tile with one set, for warp tiles whose accumulators leave no room for two: the fragments of B stay
// for a k-block, those of A are streamed, each loaded while the one before it is multiplied.
template <bool WHOLE, bool ZIGZAG, int STAGES, typename OPERATION, typename TILE, typename ITERATOR, typename MEMORY>
__device__ __forceinline__ void multiply_tile_streamed(Accumulators<OPERATION, TILE>& accumulators, ITERATOR& iterator,
                                                       MEMORY& memory, MainloopState& state) {
    constexpr int ROWS = Accumulators<OPERATION, TILE>::ROWS, COLUMNS = Accumulators<OPERATION, TILE>::COLUMNS;
    static_assert(TILE::BK % OPERATION::K_BLOCK == 0, "a stage is a whole number of fragments deep");
    const auto& stage = memory.stages[state.reading];
    cp_async_wait_group<STAGES - 2>();  // this thread's part of the tile has arrived
    __syncthreads();                    // all threads' parts have, and no thread reads the stage before it any more
#pragma unroll
    for (int k_offset = 0; k_offset < TILE::BK; k_offset += OPERATION::K_BLOCK) {
        typename OPERATION::A a[2];
        typename OPERATION::B b[COLUMNS];
        load_a(a[0], stage, 0, k_offset);
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) load_b(b[j], stage, j, k_offset);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            if (i + 1 < ROWS) load_a(a[(i + 1) % 2], stage, i + 1, k_offset);
            multiply_row<ZIGZAG>(accumulators, i, a[i % 2], b);
            if (k_offset == 0 && i == 0) stage_ahead<WHOLE, STAGES>(iterator, memory, state);
        }
    }
    state.filling = state.reading;
    state.reading = state.reading + 1 == STAGES ? 0 : state.reading + 1;
    ++state.tile;
}

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS, CONFIG::MIN_BLOCKS)
    wmma_final(const __grid_constant__ GemmParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    using WIDTHS = typename CONFIG::WIDTHS;
    constexpr int PAD = CONFIG::PAD, STAGES = CONFIG::STAGES, SETS = CONFIG::SETS, GROUP = CONFIG::GROUP;
    constexpr bool ZIGZAG = CONFIG::ZIGZAG;
    const GemmParams<OPERATION> gemm = params.values();
    const auto position = grouped_tile<GROUP>(blockIdx.x, tiles_along(gemm.m, TILE::BM), tiles_along(gemm.n, TILE::BN));
    const int row = position.row * TILE::BM, column = position.column * TILE::BN;
    static_assert(STAGES >= 2, "a pipeline has a stage to fill beside the one that is read");
    extern __shared__ __align__(128) unsigned char dynamic_memory[];
    using MEMORY = BlockMemory<OPERATION, TILE, PAD, STAGES, RowPatch<OPERATION, TILE::WN>>;
    auto& memory = *reinterpret_cast<MEMORY*>(dynamic_memory);

    Accumulators<OPERATION, TILE> accumulators;
    accumulators.zero();

    BlockTileIterator<AsyncCopy, OPERATION, TILE, WIDTHS, PAD> iterator(gemm, row, column);
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
        iterator.stage_any(memory.stages[ahead], ahead);
        cp_async_commit_group();
    }
    MainloopState state{0, 0, STAGES - 1};
    static_assert(SETS == 1 || SETS == 2, "fragments come in one set or two");
    if constexpr (SETS == 2) {
        Fragments<OPERATION, TILE> fragments[2];
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();  // the first stage is full
        fragments[0].load(memory.stages[0], 0);
#pragma unroll 1
        while (state.tile + STAGES - 1 < iterator.whole_tiles)
            multiply_tile_double_buffered<true, ZIGZAG, STAGES>(accumulators, fragments, iterator, memory, state);
#pragma unroll 1
        while (state.tile < iterator.tiles_k)
            multiply_tile_double_buffered<false, ZIGZAG, STAGES>(accumulators, fragments, iterator, memory, state);
    } else {
#pragma unroll 1
        while (state.tile + STAGES - 1 < iterator.whole_tiles)
            multiply_tile_streamed<true, ZIGZAG, STAGES>(accumulators, iterator, memory, state);
#pragma unroll 1
        while (state.tile < iterator.tiles_k)
            multiply_tile_streamed<false, ZIGZAG, STAGES>(accumulators, iterator, memory, state);
    }
    __syncthreads();  // the memory of the stages becomes that of the patches
    store_rows<WIDTHS::D>(accumulators, memory.patches, gemm, row, column);
}

}  // namespace warptile
