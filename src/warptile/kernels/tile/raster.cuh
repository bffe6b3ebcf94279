// Rasterization: from a tile's number in launch order to its row and column of tiles.
#pragma once

namespace warptile {

struct TilePosition {
    int row, column;
};

// Tiles are numbered down GROUP rows before the next column, so that the CTAs that are resident at one time cover a
// nearly square part of D and share its operands in L2 (threadblock swizzle). The last group may have fewer rows.
template <int GROUP>
__device__ __forceinline__ TilePosition grouped_tile(unsigned block, unsigned tiles_m, unsigned tiles_n) {
    const unsigned blocks_a_group = GROUP * tiles_n;
    const unsigned first_row = block / blocks_a_group * GROUP;
    const unsigned rows = min(tiles_m - first_row, static_cast<unsigned>(GROUP));
    const unsigned within = block % blocks_a_group;
    return {static_cast<int>(first_row + within % rows), static_cast<int>(within / rows)};
}

}  // namespace warptile
