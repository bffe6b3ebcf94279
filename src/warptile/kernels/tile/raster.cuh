// Which tile of D a block computes: its number in launch order turned into a row and a column of tiles.
#pragma once

namespace warptile {

struct TilePosition {
    int row, column;
};

// Blocks run down GROUP rows of tiles before they go on to the next column, so that the blocks that are resident at
// one time cover a nearly square part of D and share its operands in L2. The last group may have fewer rows.
template <int GROUP>
__device__ __forceinline__ TilePosition grouped_tile(unsigned block, unsigned tiles_m, unsigned tiles_n) {
    const unsigned blocks_a_group = GROUP * tiles_n;
    const unsigned first_row = block / blocks_a_group * GROUP;
    const unsigned rows = min(tiles_m - first_row, static_cast<unsigned>(GROUP));
    const unsigned within = block % blocks_a_group;
    return {static_cast<int>(first_row + within % rows), static_cast<int>(within / rows)};
}

}  // namespace warptile
