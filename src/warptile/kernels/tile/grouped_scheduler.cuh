// The tile schedulers of grouped GEMMs: groups of columns of D with an A each, or groups along K with a D each. Their
// extents are in device memory, and every CTA finds its tiles by itself.
#pragma once

#include "tile/raster.cuh"
#include "tile/scale.cuh"

namespace warptile {

// A tile of D and the part of K that it is summed over. (row, column) is its first element; `columns` of its columns
// are in the group.
struct __align__(8) GroupedTile {
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

// A group, from `begin` up to `end`.
struct GroupRange {
    int group, begin, end;
    __device__ __forceinline__ int extent() const { return end - begin; }
};

// Groups in shared memory in falling order of their *weights*, equal ones as they come. More than MOST groups are not
// sorted.
template <int MOST>
struct GroupTable {
    GroupRange sorted[MOST];
    int weights[MOST];

    // All threads of the CTA write the table.
    template <typename OFFSET, typename WEIGHT>
    __device__ __forceinline__ void sort(const OFFSET* ends, int groups, int extent, const WEIGHT& weight_of) {
        const int group = threadIdx.x;
        if (groups > MOST) return;
        GroupRange mine{group, 0, 0};
        int weight = 0;
        if (group < groups) {
            for (int before = 0; before < group; ++before) mine.begin = end_of_group(ends, before, mine.begin, extent);
            mine.end = end_of_group(ends, group, mine.begin, extent);
            weight = weight_of(mine.extent());
            weights[group] = weight;
        }
        __syncthreads();
        if (group < groups) {
            int rank = 0;
            for (int other = 0; other < groups; ++other)
                rank += weights[other] > weight || (weights[other] == weight && other < group);
            sorted[rank] = mine;
        }
        __syncthreads();
    }
};

// Groups of columns of D. A group is divided into tiles of nearly as many columns each, a multiple of STEP. Tiles are
// numbered group by group, and inside of a group along its columns first: the CTAs that have the same rows of A at one
// time share them in L2. Groups of wide tiles come first, so that what the last CTAs still have to do is short; with
// more than MOST_SORTED groups they come as they are. A CTA asks for tiles with rising numbers, so that it walks
// through the groups once.
template <typename TILE, int GROUP, int STEP, int MOST_SORTED, typename PARAMS>
struct ColumnGroupScheduler {
    using Table = GroupTable<MOST_SORTED>;

    const PARAMS& params;
    const Table& table;
    unsigned first_tile = 0, tiles_n = 0;  // those of the group begin at `first_tile`
    int place = -1;                        // in the order of groups
    GroupRange columns = {-1, 0, 0};

    // Columns of a tile of a group of `extent` columns; its last tile may have fewer.
    static __device__ __forceinline__ int width_of(int extent) {
        return tiles_along(extent, STEP * tiles_along(extent, TILE::BN)) * STEP;
    }

    static __device__ __forceinline__ void sort(const PARAMS& params, Table& table) {
        table.sort(params.ends, params.groups, params.gemm.n,
                   [](int extent) { return extent > 0 ? width_of(extent) : 0; });
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
            tiles_n = tiles_along(columns.extent(), TILE::BN);
        }
        const int width = width_of(columns.extent());
        const TilePosition position = grouped_tile<GROUP>(tile - first_tile, tiles_n, tiles_m);
        const int column = columns.begin + position.row * width;
        work = {columns.group, position.column * TILE::BM, column, min(columns.end - column, width), 0, params.gemm.k};
        return true;
    }
};

// Groups along K: each has a D of the same extents, and as many tiles. A tile of a short group takes as long as it
// takes to store it, one of a long group as long as its MMAs: the longest group and the shortest one are a pair, whose
// tiles alternate, then the next ones of both, so that stores and MMAs overlap at all times. With more than MOST_SORTED
// groups they come as they are, one after the other. A CTA asks for tiles with rising numbers.
template <typename TILE, int GROUP, int MOST_SORTED, typename PARAMS>
struct KGroupScheduler {
    using Table = GroupTable<MOST_SORTED>;

    const PARAMS& params;
    const Table& table;
    GroupRange walked = {-1, 0, 0};  // where groups are not sorted

    static __device__ __forceinline__ void sort(const PARAMS& params, Table& table) {
        table.sort(params.ends, params.groups, params.gemm.k, [](int extent) { return extent; });
    }

    // The tile of a number; false when there is none.
    __device__ __forceinline__ bool find(unsigned tile, GroupedTile& work) {
        const unsigned groups = params.groups, n = params.gemm.n;
        const unsigned tiles_m = tiles_along(params.gemm.m, TILE::BM), tiles_n = tiles_along(n, TILE::BN);
        const unsigned of_group = tiles_m * tiles_n;
        if (tile >= groups * of_group) return false;
        GroupRange k;
        unsigned of_k;  // the tile's number among those of its group
        if (groups <= MOST_SORTED) {
            const unsigned pair = tile / (2 * of_group), in_pair = tile % (2 * of_group);
            const bool alone = 2 * pair + 1 == groups;
            k = table.sorted[alone || in_pair % 2 == 0 ? pair : groups - 1 - pair];
            of_k = alone ? in_pair : in_pair / 2;
        } else {
            const int wanted = static_cast<int>(tile / of_group);
            while (walked.group < wanted) {
                const int group = walked.group + 1, begin = walked.end;
                walked = {group, begin, end_of_group(params.ends, group, begin, params.gemm.k)};
            }
            k = walked;
            of_k = tile % of_group;
        }
        const TilePosition position = grouped_tile<GROUP>(of_k, tiles_m, tiles_n);
        const int column = position.column * TILE::BN;
        work = {k.group, position.row * TILE::BM, column, min(static_cast<int>(n) - column, TILE::BN), k.begin, k.end};
        return true;
    }
};

}  // namespace warptile
