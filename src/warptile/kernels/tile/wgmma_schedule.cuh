// Which tiles a block computes, one after the other, and over which part of the depth.
#pragma once

#include "tile/raster.cuh"

namespace warptile {

// `steps` steps of depth of one tile, from step `first` on. (row, column) is its first element of D, of the batch's
// matrix `matrix`.
struct Work {
    int matrix, row, column, first, steps;
};

// The tiles of D for blocks that stay. A *team* is a cluster of CLUSTER_M x CLUSTER_N blocks; it computes as many
// neighbouring tiles together. Teams take whole tiles in turn, but of the last `streamed` ones they share the steps of
// depth evenly ("stream-K": Osama et al., 2023, arXiv 2301.03598): a team may begin in the middle of a tile and end in the
// middle of another. Splitting every tile over several teams ("split-K") is the case of more teams than tiles.
//
// With CLASSES > 1 the matrices of the batch are classes of rows of one matrix D, row r of matrix q being row
// CLASSES r + q of it, and ALIGNED elements are 16 bytes: the tiles of a class begin at multiples of 16 bytes of D, up to
// ALIGNED - 1 columns before those of a matrix that begins so. The first may begin, the last may end outside.
template <typename TILE, int CLUSTER_M, int CLUSTER_N, int GROUP, bool ALONG_N, bool BATCHED = false, int CLASSES = 1,
          int ALIGNED = 1>
struct WgmmaSchedule {
    int tiles_m, tiles_n, steps, whole, tile, teams, place_m, place_n, team;
    int shared, at, end;  // steps of depth, counted over all shared tiles
    unsigned d, pitch;  // with CLASSES: where D begins and how far classes are apart, in elements

    __device__ __forceinline__ WgmmaSchedule(int m, int n, int k, int streamed, int rank, int batch = 1, unsigned d = 0,
                                             unsigned pitch = 0)
        : tiles_m(tiles_along(m, TILE::BM * CLUSTER_M) * CLASSES),
          tiles_n(tiles_along(n + ALIGNED - 1, TILE::BN * CLUSTER_N)),
          steps(max(1, static_cast<int>(tiles_along(k, TILE::BK)))), whole(tiles_m * tiles_n * (CLASSES > 1 ? 1 : batch) - streamed),
          tile(blockIdx.x / (CLUSTER_M * CLUSTER_N)), teams(gridDim.x / (CLUSTER_M * CLUSTER_N)),
          place_m(rank % CLUSTER_M), place_n(rank / CLUSTER_M), team(tile),
          shared(streamed * steps), at(begin_of(team)), end(begin_of(team + 1)), d(d), pitch(pitch) {}

    // Where the shared steps of a team begin: at shared * some_team / teams, without products of more than 32 bits.
    __device__ __forceinline__ int begin_of(int some_team) const {
        const unsigned each = static_cast<unsigned>(shared) / teams, rest = static_cast<unsigned>(shared) % teams;
        return each * some_team + rest * some_team / teams;
    }

    // Whole tiles that this team has still to take.
    __device__ __forceinline__ int whole_tiles() const { return tile < whole ? (whole - 1 - tile) / teams + 1 : 0; }

    // Turns of all teams, each taking one whole tile.
    __device__ __forceinline__ int turns() const { return (whole + teams - 1) / teams; }

    // Rows and columns of D, from the first on, in which all tiles of the first `turns` turns lie.
    static __device__ __forceinline__ void extents(int m, int n, int turns, int& rows, int& columns) {
        const int tiles_m = tiles_along(m, TILE::BM * CLUSTER_M), tiles_n = tiles_along(n, TILE::BN * CLUSTER_N);
        const int grouped = ALONG_N ? tiles_n : tiles_m, along = ALONG_N ? tiles_m : tiles_n;
        const int teams = gridDim.x / (CLUSTER_M * CLUSTER_N), tiles = min(turns * teams, tiles_m * tiles_n);
        const int groups = (tiles + GROUP * along - 1) / (GROUP * along), high = min(GROUP, grouped);
        const int wide = groups > 1 ? along : (tiles + high - 1) / high;
        const int across = min(groups * GROUP, grouped);
        rows = (ALONG_N ? wide : across) * TILE::BM * CLUSTER_M;
        columns = (ALONG_N ? across : wide) * TILE::BN * CLUSTER_N;
    }

    // The next work of this block; false when there is none.
    __device__ __forceinline__ bool next(Work& work) {
        int index = tile;
        if (at < end) {
            index = at / steps;
            work.first = at - index * steps;
            work.steps = min(steps - work.first, end - at);
            at += work.steps;
            index += whole;
        } else {
            if (tile >= whole) return false;
            tile += teams;
            work.first = 0;
            work.steps = steps;
        }
        work.matrix = 0;
        if constexpr (BATCHED && CLASSES == 1) {
            work.matrix = index / (tiles_m * tiles_n);
            index %= tiles_m * tiles_n;
        }
        TilePosition position;
        if constexpr (ALONG_N) {
            position = grouped_tile<GROUP>(index, tiles_n, tiles_m);
            position = {position.column, position.row};
        } else {
            position = grouped_tile<GROUP>(index, tiles_m, tiles_n);
        }
        if constexpr (CLASSES > 1) {
            work.matrix = position.row % CLASSES;
            position.row /= CLASSES;
        }
        work.row = (position.row * CLUSTER_M + place_m) * TILE::BM;
        work.column = (position.column * CLUSTER_N + place_n) * TILE::BN;
        if constexpr (CLASSES > 1) work.column -= (d + work.matrix * pitch) % ALIGNED;
        return true;
    }
};

}  // namespace warptile
