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
__device__ __forceinline__ int end_of_group(const OFFSET* ends, int group, int begin, int extent) {
    const OFFSET end = ends[group];
    return end < begin ? begin : end > extent ? extent : static_cast<int>(end);
}

// Both schedulers keep a reference to the kernel's parameters, which costs no registers between two tiles.

// Groups of columns of D. A group is divided into tiles of nearly as many columns each, a multiple of STEP. Tiles are
// numbered group by group, and inside of a group along its columns first: the CTAs that have the same rows of A at one
// time share them in L2. Groups of wide tiles come first, so that what the last CTAs still have to do is short; with
// more than MOST_SORTED groups they come as they are. A CTA asks for tiles with rising numbers, so that it walks
// through the groups once.
template <typename TILE, int GROUP, int STEP, int MOST_SORTED, typename PARAMS>
struct ColumnGroupScheduler {
    struct Columns {
        int group, begin, end;
    };
    // In shared memory: the groups in that order, and the columns of each one's tiles.
    struct Table {
        Columns sorted[MOST_SORTED];
        int widths[MOST_SORTED];
    };

    const PARAMS& params;
    const Table& table;
    unsigned first_tile = 0, tiles_n = 0;  // those of the group begin at `first_tile`
    int place = -1;                        // in the order of groups
    Columns columns = {-1, 0, 0};

    // Columns of a tile of a group of `extent` columns; its last tile may have fewer.
    static __device__ __forceinline__ int width_of(int extent) {
        return tiles_along(extent, STEP * tiles_along(extent, TILE::BN)) * STEP;
    }

    // All threads of the CTA write the table.
    static __device__ __forceinline__ void sort(const PARAMS& params, Table& table) {
        const int groups = params.groups, extent = params.gemm.n, group = threadIdx.x;
        if (groups > MOST_SORTED) return;
        Columns mine{group, 0, 0};
        int width = 0;
        if (group < groups) {
            for (int before = 0; before < group; ++before)
                mine.begin = end_of_group(params.ends, before, mine.begin, extent);
            mine.end = end_of_group(params.ends, group, mine.begin, extent);
            if (mine.end > mine.begin) width = width_of(mine.end - mine.begin);
            table.widths[group] = width;
        }
        __syncthreads();
        if (group < groups) {
            int rank = 0;
            for (int other = 0; other < groups; ++other)
                rank += table.widths[other] > width || (table.widths[other] == width && other < group);
            table.sorted[rank] = mine;
        }
        __syncthreads();
    }

    // The tile of a number; false when there is none.
    __device__ __forceinline__ bool find(unsigned tile, GroupedTile& work) {
        const unsigned tiles_m = tiles_along(params.gemm.m, TILE::BM);
        while (tile >= first_tile + tiles_m * tiles_n) {
            if (++place >= params.groups) return false;
            first_tile += tiles_m * tiles_n;
            if (params.groups <= MOST_SORTED) {
                columns = table.sorted[place];
            } else {
                const int begin = columns.end;
                columns = {place, begin, end_of_group(params.ends, place, begin, params.gemm.n)};
            }
            tiles_n = tiles_along(columns.end - columns.begin, TILE::BN);
        }
        const int width = width_of(columns.end - columns.begin);
        const TilePosition position = grouped_tile<GROUP>(tile - first_tile, tiles_n, tiles_m);
        const int column = columns.begin + position.row * width;
        work = {columns.group, position.column * TILE::BM, column, min(columns.end - column, width), 0, params.gemm.k};
        return true;
    }
};

// Groups along K: each has a D of the same extents, and all tiles of one come before those of the next.
template <typename TILE, int GROUP, typename PARAMS>
struct KGroupScheduler {
    const PARAMS& params;
    unsigned next_tile = blockIdx.x;
    int group = 0, begin = 0;  // `group` begins at `begin`: where all groups before it have ended

    __device__ __forceinline__ explicit KGroupScheduler(const PARAMS& params) : params(params) {}

    // This CTA's next tile; false when there is none.
    __device__ __forceinline__ bool next(GroupedTile& work) {
        const int n = params.gemm.n, k = params.gemm.k;
        const unsigned tiles_m = tiles_along(params.gemm.m, TILE::BM), tiles_n = tiles_along(n, TILE::BN);
        const int wanted = next_tile / (tiles_m * tiles_n);
        if (wanted >= params.groups) return false;
        while (group < wanted) begin = end_of_group(params.ends, group++, begin, k);
        const int end = end_of_group(params.ends, group, begin, k);
        const TilePosition position = grouped_tile<GROUP>(next_tile % (tiles_m * tiles_n), tiles_m, tiles_n);
        const int column = position.column * TILE::BN;
        work = {group, position.row * TILE::BM, column, min(n - column, TILE::BN), begin, end};
        next_tile += gridDim.x;
        return true;
    }
};

}  // namespace warptile
