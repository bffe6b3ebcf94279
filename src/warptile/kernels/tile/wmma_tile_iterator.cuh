// Staging for kernels that take the tiles of a block in order: every address that can be is worked out once.
#pragma once

#include "tile/wmma_staging.cuh"

namespace warptile {

// One operand. The threads of a block cover a whole number of rows of a tile in each pass, so a thread stays in one
// column of vectors: one pointer, moved by constants, serves all its copies.
template <typename COPY, int THREADS, typename TILE>
struct OperandIterator {
    using ELEMENT = typename TILE::ELEMENT;
    static constexpr int PER_ROW = TILE::COLUMNS / COPY::WIDTH;
    static constexpr int ROWS_A_PASS = THREADS / PER_ROW;
    static constexpr bool REGULAR = THREADS % PER_ROW == 0 && TILE::ROWS % (ROWS_A_PASS ? ROWS_A_PASS : 1) == 0;

    // Copies without a loop between them: all of those of 16 bytes; narrow ones are many, and each holds an address.
    static constexpr int AT_ONCE = COPY::IN_FLIGHT > 16 ? COPY::IN_FLIGHT : 8;

    const ELEMENT* from;     // this thread's first vector of the tile that is staged next
    long long to_next_pass;  // from a row of this pass to the same row of the next
    long long to_next_tile;  // from a tile to the tile that is staged after it
    int shared_offset;       // this thread's first vector in the shared tile

    __device__ __forceinline__ OperandIterator(const ELEMENT* origin, long long ld, long long to_next_tile)
        : to_next_pass(ROWS_A_PASS * ld), to_next_tile(to_next_tile) {
        const int row = threadIdx.x / PER_ROW, column = threadIdx.x % PER_ROW * COPY::WIDTH;
        from = origin + row * ld + column;
        shared_offset = row * TILE::STRIDE + column;
    }

    // Stages the next tile, which must lie inside the matrix.
    __device__ __forceinline__ void stage(TILE& tile) {
        const ELEMENT* global = from;
#pragma unroll AT_ONCE
        for (int row = 0; row < TILE::ROWS; row += ROWS_A_PASS) {
            COPY::whole(tile.units + shared_offset + row * TILE::STRIDE, global);
            global += to_next_pass;
        }
        from += to_next_tile;
    }
};

// Both operands of the block tile at (row, column). Tiles inside the matrices take the streams; the last one of a
// ragged K, and all of a block at a ragged edge, are copied with predicates.
template <template <typename, int> class COPY, typename OPERATION, typename TILE, typename WIDTHS, int PAD>
struct BlockTileIterator {
    using STAGE = Stage<OPERATION, TILE, PAD>;
    using COPY_A = COPY<typename OPERATION::ELEMENT, WIDTHS::A>;
    using COPY_B = COPY<typename OPERATION::ELEMENT, WIDTHS::B>;
    using A = OperandIterator<COPY_A, TILE::THREADS, decltype(STAGE::a)>;
    using B = OperandIterator<COPY_B, TILE::THREADS, decltype(STAGE::b)>;
    static constexpr bool REGULAR = A::REGULAR && B::REGULAR;

    const GemmParams<OPERATION>& gemm;
    const int row, column, tiles_k;
    const int whole_tiles;  // the first tiles, which need no predicates
    A a;
    B b;

    __device__ __forceinline__ BlockTileIterator(const GemmParams<OPERATION>& gemm, int row, int column)
        : gemm(gemm),
          row(row),
          column(column),
          tiles_k(tiles_along(gemm.k, TILE::BK)),
          whole_tiles(REGULAR && gemm.m - row >= TILE::BM && gemm.n - column >= TILE::BN ? gemm.k / TILE::BK : 0),
          a(gemm.a_at(row, 0), gemm.lda, TILE::BK),
          b(gemm.b_at(0, column), gemm.ldb, OPERATION::B_COLUMN_MAJOR ? TILE::BK : TILE::BK * gemm.ldb) {}

    // Starts the copies of the next tile, which is one of the whole ones.
    __device__ __forceinline__ void stage_whole(STAGE& stage) {
        a.stage(stage.a);
        b.stage(stage.b);
    }

    // Starts the copies of tile number `tile`; tiles are staged in order, and past the last one nothing happens.
    __device__ __forceinline__ void stage_any(STAGE& stage, int tile) {
        if (tile < whole_tiles) {
            stage_whole(stage);
        } else if (tile < tiles_k) {
            constexpr bool COLUMN_MAJOR = OPERATION::B_COLUMN_MAJOR;
            const int k_offset = tile * TILE::BK, columns = gemm.n - column, left = gemm.k - k_offset;
            stage_rectangle<COPY_A, TILE::THREADS, false>(stage.a, gemm.a_at(row, k_offset), gemm.lda, gemm.m - row,
                                                          left);
            stage_rectangle<COPY_B, TILE::THREADS, false>(stage.b, gemm.b_at(k_offset, column), gemm.ldb,
                                                          COLUMN_MAJOR ? columns : left, COLUMN_MAJOR ? left : columns);
        }
    }
};

}  // namespace warptile
