// The tile schedulers of grouped GEMMs: groups of columns of D with an A each, or groups along K with a D each. Their
// extents are in device memory, and every CTA finds its tiles by itself.
#pragma once

#include "tile/raster.cuh"
#include "tile/scale.cuh"

namespace warptile {

// A tile of D and the part of K that it is summed over. (row, column) is its first element; `columns` of its columns
// are in the group.
struct GroupedTile {
    int group, row, column, columns, k_begin, k_end;
};

// Groups follow each other: group g begins where the one before ends, and ends at ends[g]. An end that falls, or that
// passes `extent`, is taken as the nearest one that does not, so that no tile lies outside the operands.
template <typename OFFSET>
struct GroupEnds {
    const OFFSET* ends;
    int groups, extent;

    __device__ __forceinline__ int end_of(int group, int begin) const {
        const OFFSET end = ends[group];
        return end < begin ? begin : end > extent ? extent : static_cast<int>(end);
    }
};

// Groups of columns of D. Tiles are numbered group by group, and inside of a group down its columns first: the CTAs
// that have the same rows of A at one time share them in L2. A CTA's tiles have rising numbers, so that it walks
// through the groups once.
template <typename TILE, int GROUP, typename OFFSET>
struct ColumnGroupScheduler {
    GroupEnds<OFFSET> ends;
    int tiles_m, k;
    unsigned next_tile = blockIdx.x, first_tile = 0, tiles = 0;  // those of the group begin at `first_tile`
    int group = -1, begin = 0, end = 0;

    __device__ __forceinline__ ColumnGroupScheduler(const GroupEnds<OFFSET>& ends, int m, int, int k)
        : ends(ends), tiles_m(tiles_along(m, TILE::BM)), k(k) {}

    // This CTA's next tile; false when there is none.
    __device__ __forceinline__ bool next(GroupedTile& work) {
        while (next_tile >= first_tile + tiles) {
            if (++group >= ends.groups) return false;
            first_tile += tiles;
            begin = end;
            end = ends.end_of(group, begin);
            tiles = tiles_m * tiles_along(end - begin, TILE::BN);
        }
        const TilePosition position =
            grouped_tile<GROUP>(next_tile - first_tile, tiles_along(end - begin, TILE::BN), tiles_m);
        const int column = begin + position.row * TILE::BN;
        work = {group, position.column * TILE::BM, column, min(end - column, TILE::BN), 0, k};
        next_tile += gridDim.x;
        return true;
    }
};

// Groups along K: each has a D of the same extents, and all tiles of one come before those of the next.
template <typename TILE, int GROUP, typename OFFSET>
struct KGroupScheduler {
    GroupEnds<OFFSET> ends;
    int tiles_m, tiles_n, n;
    unsigned next_tile = blockIdx.x;

    __device__ __forceinline__ KGroupScheduler(const GroupEnds<OFFSET>& ends, int m, int n, int)
        : ends(ends), tiles_m(tiles_along(m, TILE::BM)), tiles_n(tiles_along(n, TILE::BN)), n(n) {}

    // This CTA's next tile; false when there is none.
    __device__ __forceinline__ bool next(GroupedTile& work) {
        const unsigned of_group = tiles_m * tiles_n;
        const int group = next_tile / of_group;
        if (group >= ends.groups) return false;
        const int begin = group > 0 ? ends.end_of(group - 1, 0) : 0;
        const TilePosition position = grouped_tile<GROUP>(next_tile % of_group, tiles_m, tiles_n);
        const int column = position.column * TILE::BN;
        work = {group, position.row * TILE::BM, column, min(n - column, TILE::BN), begin, ends.end_of(group, begin)};
        next_tile += gridDim.x;
        return true;
    }
};

}  // namespace warptile
