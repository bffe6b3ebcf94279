// The mainloop with double-buffered fragments, whoever copies the operands.
#pragma once

#include "tile/mma_fragments.cuh"

namespace warptile {

// Multiplies state.tile with two sets of fragments that alternate. The first k-block's are loaded already; the last
// k-block loads the first of the next tile.
//
// STATE knows the tile, its stage and the copies: `advance` goes on to the next tile, which has then arrived, and
// `stage_ahead` starts one of the parts into which the copies of a later tile are divided.
template <bool WHOLE, typename OPERATION, typename TILE, typename LOADER, typename ITERATOR, typename STATE>
__device__ __forceinline__ void multiply_double_buffered(MmaAccumulators<OPERATION, TILE>& accumulators,
                                                         MmaFragments<OPERATION, TILE> (&fragments)[2],
                                                         const LOADER& loader, ITERATOR& iterator, unsigned stages,
                                                         STATE& state) {
    constexpr int K_BLOCKS = TILE::BK / OPERATION::K_BLOCK;
    constexpr int COPY_K_BLOCKS = STATE::copy_k_blocks(K_BLOCKS);
    static_assert(K_BLOCKS % 2 == 0, "the two sets of fragments alternate: an even number of k-blocks");
#pragma unroll
    for (int k_block = 0; k_block < K_BLOCKS; ++k_block) {
        // After the barrier no thread reads the present stage any more: the next copies overwrite it.
        if (k_block == K_BLOCKS - 1) state.advance();
        // At the end there is no next tile to load from.
        if (WHOLE || k_block < K_BLOCKS - 1 || state.tile + 1 < iterator.tiles_k)
            loader.load(fragments[(k_block + 1) % 2], stages + state.reading, (k_block + 1) % K_BLOCKS);
        if (k_block < COPY_K_BLOCKS) state.template stage_ahead<WHOLE, COPY_K_BLOCKS>(iterator, stages, k_block);
        accumulators.multiply(fragments[k_block % 2]);
    }
    ++state.tile;
}

}  // namespace warptile
