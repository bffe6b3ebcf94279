// mma-final: a pipeline of stages without a branch in its mainloop, fragments that run ahead across stages, blocks in
// groups, D in vectors; the tile sizes are tuned.
#pragma once

#include "tile/batch.cuh"
#include "tile/mma_epilogue.cuh"
#include "tile/mma_mainloop.cuh"
#include "tile/mma_staging.cuh"
#include "tile/raster.cuh"

namespace warptile {

// The state of the mainloop: the tile that is multiplied, and the stages that it is in and that is filled next, by
// their distance from the first stage in bytes. The copies are AHEAD tiles ahead.
template <int STAGES, int AHEAD, int STAGE_BYTES>
struct MmaMainloopState {
    int tile = 0;
    unsigned reading = 0, filling = AHEAD * STAGE_BYTES;

    // Over how many of a tile's K_BLOCKS its copies are spread: few where the next tile already waits for them.
    static __device__ constexpr int copy_k_blocks(int k_blocks) {
        return AHEAD > 1 ? k_blocks - 1 : (k_blocks + 3) / 4;
    }

    // The stage after the one at `offset`.
    static __device__ __forceinline__ unsigned after(unsigned offset) {
        return offset == (STAGES - 1) * STAGE_BYTES ? 0 : offset + STAGE_BYTES;
    }

    // Starts part `part` of PARTS of the copies of the tile AHEAD further on. With WHOLE that tile is whole, and the
    // mainloop's body has no branch.
    template <bool WHOLE, int PARTS, typename ITERATOR>
    __device__ __forceinline__ void stage_ahead(ITERATOR& iterator, unsigned stages, int part) const {
        if constexpr (WHOLE) {
            iterator.template stage_whole<PARTS>(stages + filling, part);
        } else if (part == 0) {
            iterator.stage_any(stages + filling, tile + AHEAD);
        }
    }

    // Goes on to the next tile: ends the group of copies, an empty one past the last tile, for the wait counts groups,
    // not tiles; and makes sure that the next tile has arrived, for every thread.
    __device__ __forceinline__ void advance() {
        cp_async_commit_group();
        cp_async_wait_group<AHEAD - 1>();
        __syncthreads();
        reading = after(reading);
        filling = after(filling);
    }
};

// Fragments for warp tiles whose accumulators leave no room for two sets: of B two k-blocks, of A what is multiplied
// and what comes next.
template <typename OPERATION, typename TILE, int TOGETHER>
struct StreamedFragments {
    typename OPERATION::WORD a[2][TOGETHER][OPERATION::A_WORDS];
    typename OPERATION::WORD b[2][TILE::WN / 8][OPERATION::B_WORDS];
};

// Multiplies state.tile with passing fragments of A. B's of the first k-block and A's first rows are loaded already;
// the last k-block loads the first of the next tile. It still reads the present stage past the barrier: the stage that
// is filled next is the one before it.
template <bool WHOLE, typename OPERATION, typename TILE, typename LOADER, typename ITERATOR, typename STATE>
__device__ __forceinline__ void multiply_streamed(MmaAccumulators<OPERATION, TILE>& accumulators,
                                                  StreamedFragments<OPERATION, TILE, LOADER::TOGETHER_A>& fragments,
                                                  const LOADER& loader, ITERATOR& iterator, unsigned stages,
                                                  STATE& state) {
    constexpr int TOGETHER = LOADER::TOGETHER_A, GROUPS = TILE::WM / 16 / TOGETHER,
                  K_BLOCKS = TILE::BK / OPERATION::K_BLOCK;
    constexpr int COPY_K_BLOCKS = STATE::copy_k_blocks(K_BLOCKS), LOADS_B = LOADER::LOADS_B;
    constexpr int SPREAD = GROUPS > 1 ? GROUPS - 1 : 1;  // groups over which the loads of B are spread
    static_assert(GROUPS % 2 == 0, "the two sets of rows of A alternate: an even number of groups");
    static_assert(K_BLOCKS % 2 == 0, "the two sets of B alternate: an even number of k-blocks");
    const unsigned present = stages + state.reading;
#pragma unroll
    for (int k_block = 0; k_block < K_BLOCKS; ++k_block) {
        const bool last = k_block == K_BLOCKS - 1;
        if (last) state.advance();
        const unsigned following = last ? stages + state.reading : present;
        // At the end there is no next tile to load from.
        const bool more = WHOLE || !last || state.tile + 1 < iterator.tiles_k;
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            auto& coming = fragments.a[(group + 1) % 2];
            if (group + 1 < GROUPS) {
                loader.load_a(&coming[0][0], present, (group + 1) * TOGETHER, k_block);
            } else if (more) {
                loader.load_a(&coming[0][0], following, 0, (k_block + 1) % K_BLOCKS);
            }
            if (more) {
#pragma unroll
                for (int load = group * LOADS_B / SPREAD; load < min((group + 1) * LOADS_B / SPREAD, LOADS_B); ++load)
                    loader.load_b(fragments.b[(k_block + 1) % 2], following, load, (k_block + 1) % K_BLOCKS);
            }
            if (k_block < COPY_K_BLOCKS)
                state.template stage_ahead<WHOLE, COPY_K_BLOCKS * GROUPS>(iterator, stages, k_block * GROUPS + group);
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i)
                accumulators.multiply_row(group * TOGETHER + i, fragments.a[group % 2][i], fragments.b[k_block % 2]);
        }
    }
    ++state.tile;
}

// The accumulators of the block's tile at (row, column), with stages at `stages`. All warps have read those when it
// returns: their memory may become that of the patches.
template <typename CONFIG>
__device__ __forceinline__ void multiply_tile(
    MmaAccumulators<typename CONFIG::OPERATION, typename CONFIG::TILE>& accumulators,
    const GemmParams<typename CONFIG::OPERATION>& gemm, int row, int column, unsigned stages) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    using ACCESS = typename CONFIG::ACCESS;
    constexpr int STAGES = CONFIG::STAGES, SETS = CONFIG::SETS;
    static_assert(SETS == 1 || SETS == 2, "fragments come in one set or two");
    constexpr int AHEAD = SETS == 2 ? STAGES - 1 : STAGES - 2;
    static_assert(AHEAD >= 1,
                  "a pipeline has a stage to fill beside those that are read: two with one set of fragments");
    using ITERATOR = MmaTileIterator<AsyncPacketCopy, OPERATION, TILE, ACCESS, true>;
    using LOADER = MmaFragmentLoader<OPERATION, TILE, true>;
    using STATE = MmaMainloopState<STAGES, AHEAD, ITERATOR::STAGE::BYTES>;

    accumulators.zero();
    const LOADER loader;
    ITERATOR iterator(gemm, row, column);
    for (int ahead = 0; ahead < AHEAD; ++ahead) {
        iterator.stage_any(stages + ahead * ITERATOR::STAGE::BYTES, ahead);
        cp_async_commit_group();
    }
    STATE state;
    cp_async_wait_group<AHEAD - 1>();
    __syncthreads();  // the first stage is full
    if constexpr (SETS == 2) {
        MmaFragments<OPERATION, TILE> fragments[2];
        if (iterator.tiles_k > 0) loader.load(fragments[0], stages, 0);
#pragma unroll 1
        while (state.tile + AHEAD < iterator.whole_tiles)
            multiply_double_buffered<true>(accumulators, fragments, loader, iterator, stages, state);
#pragma unroll 1
        while (state.tile < iterator.tiles_k)
            multiply_double_buffered<false>(accumulators, fragments, loader, iterator, stages, state);
    } else {
        StreamedFragments<OPERATION, TILE, LOADER::TOGETHER_A> fragments;
        if (iterator.tiles_k > 0) {
            loader.load_b(fragments.b[0], stages, 0);
            loader.load_a(&fragments.a[0][0][0], stages, 0, 0);
        }
#pragma unroll 1
        while (state.tile + AHEAD < iterator.whole_tiles)
            multiply_streamed<true>(accumulators, fragments, loader, iterator, stages, state);
#pragma unroll 1
        while (state.tile < iterator.tiles_k)
            multiply_streamed<false>(accumulators, fragments, loader, iterator, stages, state);
    }
    __syncthreads();
}

// What the kernel takes. A launch takes a batch.
template <typename CONFIG>
struct MmaFinalParams {
    GemmParams<typename CONFIG::OPERATION> gemm;
    BatchStrides strides;
};

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS, CONFIG::MIN_BLOCKS)
    mma_final(const __grid_constant__ MmaFinalParams<CONFIG> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    const int tiles_m = tiles_along(params.gemm.m, TILE::BM), tiles_n = tiles_along(params.gemm.n, TILE::BN);
    const PartOfTile<CONFIG::BATCHED> own(1, tiles_m * tiles_n);
    const GemmParams<OPERATION> gemm = matrix_of_batch<CONFIG::BATCHED>(params.gemm, params.strides, own.matrix);
    const auto position = grouped_tile<CONFIG::GROUP>(own.tile, tiles_m, tiles_n);
    const int row = position.row * TILE::BM, column = position.column * TILE::BN;
    extern __shared__ __align__(128) unsigned char memory[];  // stages, then patches
    MmaAccumulators<OPERATION, TILE> accumulators;
    multiply_tile<CONFIG>(accumulators, gemm, row, column, shared_address(memory));
    store_tile<CONFIG::ACCESS::D / static_cast<int>(sizeof(typename OPERATION::OUT))>(
        accumulators, reinterpret_cast<MmaPatch<OPERATION, TILE>*>(memory), gemm, row, column);
}

}  // namespace warptile
