// The tile scheduler of persistent kernels: which tiles of D a CTA computes, one after the other, and over which part
// of K.
#pragma once

#include "tile/raster.cuh"
#include "tile/scale.cuh"

namespace warptile {

// `k_tiles` K tiles of one tile of D, from `first_k_tile` on. (row, column) is the tile's first element in matrix
// `batch`.
struct WorkTile {
    int batch, row, column, first_k_tile, k_tiles;
};

// Clusters of CLUSTER_M x CLUSTER_N CTAs compute as many neighbouring tiles together. In each wave every cluster takes
// one whole tile. The last `stream_k_tiles` tiles are different: all clusters share their K tiles evenly ("stream-K":
// Osama et al., 2023, arXiv 2301.03598), so that a cluster may begin in the middle of one tile and end in the middle of
// another. Split-K is the case of a multiple of clusters to the tiles. With SPLITS_APART, clusters that follow each
// other then have the same part of K of different tiles, not all parts of one tile, if D is several tiles high and
// wide: neighbours load the same rows of A or columns of B at the same time, and L2 answers them together.
//
// With ROTATED the tiles of the first rows come last: the order begins at the first tile whose rows all lie at
// `first_row` or below it.
//
// With RESIDUE_CLASSES > 1 the matrices of the batch are residue classes of the rows of one matrix D: row r of class q
// is row RESIDUE_CLASSES r + q of D. ALIGNED elements are 16 bytes. Every tile of a class begins at a multiple of 16
// bytes of D, up to ALIGNED - 1 columns before the class does: the first tile of a row may begin, and the last may end,
// outside D.
template <typename TILE, int CLUSTER_M, int CLUSTER_N, int GROUP, bool RASTER_ALONG_N, bool BATCHED = false,
          int RESIDUE_CLASSES = 1, int ALIGNED = 1, bool ROTATED = false, bool SPLITS_APART = false>
struct TileScheduler {
    int tiles_m, tiles_n, k_tiles, whole_tiles, next_whole_tile, clusters, rank_m, rank_n, cluster;
    int shared_k_tiles, next_k_tile, end_k_tile;  // counted over all tiles that clusters share
    int first_tile_m;                             // rotated: the row of tiles that comes first
    unsigned d, pitch;  // residue classes: where D begins and how far classes are apart, in elements

    __device__ __forceinline__ TileScheduler(int m, int n, int k, int stream_k_tiles, int rank, int batch = 1,
                                             unsigned d = 0, unsigned pitch = 0, int first_row = 0)
        : tiles_m(tiles_along(m, TILE::BM * CLUSTER_M) * RESIDUE_CLASSES),
          tiles_n(tiles_along(n + ALIGNED - 1, TILE::BN * CLUSTER_N)),
          k_tiles(max(1, static_cast<int>(tiles_along(k, TILE::BK)))),
          whole_tiles(tiles_m * tiles_n * (RESIDUE_CLASSES > 1 ? 1 : batch) - stream_k_tiles),
          next_whole_tile(blockIdx.x / (CLUSTER_M * CLUSTER_N)),
          clusters(gridDim.x / (CLUSTER_M * CLUSTER_N)),
          rank_m(rank % CLUSTER_M),
          rank_n(rank / CLUSTER_M),
          cluster(SPLITS_APART && tiles_m > 1 && tiles_n > 1
                      ? next_whole_tile % stream_k_tiles * (clusters / stream_k_tiles) +
                            next_whole_tile / stream_k_tiles
                      : next_whole_tile),
          shared_k_tiles(stream_k_tiles * k_tiles),
          next_k_tile(first_k_tile_of(cluster)),
          end_k_tile(first_k_tile_of(cluster + 1)),
          first_tile_m(ROTATED ? tiles_along(first_row, TILE::BM * CLUSTER_M) % tiles_m : 0),
          d(d),
          pitch(pitch) {}

    // The first shared K tile of a cluster: shared_k_tiles * which / clusters, without a product of more than 32 bits.
    __device__ __forceinline__ int first_k_tile_of(int which) const {
        const unsigned each = static_cast<unsigned>(shared_k_tiles) / clusters;
        const unsigned rest = static_cast<unsigned>(shared_k_tiles) % clusters;
        return each * which + rest * which / clusters;
    }

    // Whole tiles that this cluster has still to take.
    __device__ __forceinline__ int whole_tiles_left() const {
        return next_whole_tile < whole_tiles ? (whole_tiles - 1 - next_whole_tile) / clusters + 1 : 0;
    }

    // Waves of whole tiles; the last one may leave some clusters without a tile.
    __device__ __forceinline__ int waves() const { return (whole_tiles + clusters - 1) / clusters; }

    // The first `rows` rows and `columns` columns of D contain all tiles of the first `waves` waves.
    static __device__ __forceinline__ void wave_extents(int m, int n, int waves, int& rows, int& columns) {
        const int tiles_m = tiles_along(m, TILE::BM * CLUSTER_M), tiles_n = tiles_along(n, TILE::BN * CLUSTER_N);
        const int grouped = RASTER_ALONG_N ? tiles_n : tiles_m, along = RASTER_ALONG_N ? tiles_m : tiles_n;
        const int clusters = gridDim.x / (CLUSTER_M * CLUSTER_N), tiles = min(waves * clusters, tiles_m * tiles_n);
        const int groups = (tiles + GROUP * along - 1) / (GROUP * along), high = min(GROUP, grouped);
        const int wide = groups > 1 ? along : (tiles + high - 1) / high;
        const int across = min(groups * GROUP, grouped);
        rows = (RASTER_ALONG_N ? wide : across) * TILE::BM * CLUSTER_M;
        columns = (RASTER_ALONG_N ? across : wide) * TILE::BN * CLUSTER_N;
    }

    // This CTA's next work tile; false when there is none. Shared K tiles come first.
    __device__ __forceinline__ bool next(WorkTile& work) {
        int index = next_whole_tile;
        if (next_k_tile < end_k_tile) {
            index = next_k_tile / k_tiles;
            work.first_k_tile = next_k_tile - index * k_tiles;
            work.k_tiles = min(k_tiles - work.first_k_tile, end_k_tile - next_k_tile);
            next_k_tile += work.k_tiles;
            index += whole_tiles;
        } else {
            if (next_whole_tile >= whole_tiles) return false;
            next_whole_tile += clusters;
            work.first_k_tile = 0;
            work.k_tiles = k_tiles;
        }
        work.batch = 0;
        if constexpr (BATCHED && RESIDUE_CLASSES == 1) {
            work.batch = index / (tiles_m * tiles_n);
            index %= tiles_m * tiles_n;
        }
        TilePosition position;
        if constexpr (RASTER_ALONG_N) {
            position = grouped_tile<GROUP>(index, tiles_n, tiles_m);
            position = {position.column, position.row};
        } else {
            position = grouped_tile<GROUP>(index, tiles_m, tiles_n);
        }
        if constexpr (ROTATED) {
            position.row += first_tile_m;
            if (position.row >= tiles_m) position.row -= tiles_m;
        }
        if constexpr (RESIDUE_CLASSES > 1) {
            work.batch = position.row % RESIDUE_CLASSES;
            position.row /= RESIDUE_CLASSES;
        }
        work.row = (position.row * CLUSTER_M + rank_m) * TILE::BM;
        work.column = (position.column * CLUSTER_N + rank_n) * TILE::BN;
        if constexpr (RESIDUE_CLASSES > 1) work.column -= (d + work.batch * pitch) % ALIGNED;
        return true;
    }
};

}  // namespace warptile
