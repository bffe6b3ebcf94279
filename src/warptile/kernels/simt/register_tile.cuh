// How a block tile is shared out among warps, lanes and registers.
#pragma once

#include "simt/operation.cuh"
#include "tile/gemm.cuh"
#include "tile/raster.cuh"
#include "tile/scale.cuh"

namespace warptile {

template <typename TYPE, int WIDTH>
struct __align__(WIDTH * sizeof(TYPE)) Vector {
    TYPE element[WIDTH];
};

// A block's BM x BN tile is cut into warp tiles of WM x WN, and a warp tile among 32 lanes into TM x TN each. A lane's
// rows are not neighbours: they come in pieces of PIECE rows (16 bytes of the staged type), LANES_M pieces apart, and
// its columns likewise, so that at every load the lanes of a warp read one contiguous run of shared memory.
template <typename STAGED, int BM, int BN, int WM, int WN, int TM, int TN>
struct RegisterTile {
    static constexpr int PIECE = 16 / sizeof(STAGED);
    static constexpr int LANES_M = WM / TM, LANES_N = WN / TN;
    static constexpr int WARPS_N = BN / WN, WARPS = BM / WM * WARPS_N, THREADS = WARPS * 32, WARP_COLUMNS = WN;
    static_assert(BM % WM == 0 && BN % WN == 0, "a block tile is a whole number of warp tiles");
    static_assert(WM % TM == 0 && WN % TN == 0 && LANES_M * LANES_N == 32, "a warp tile is 32 thread tiles");
    static_assert(LANES_M >= 2 && LANES_N >= 2, "lanes are interleaved two by two");
    static_assert(TM % PIECE == 0 && TN % PIECE == 0, "a thread tile is whole 16-byte pieces");

    // Lanes in squares of two by two: with lane, lane ^ 1 or lane ^ 2 at the same address, the two quarters of a
    // half-warp share one wavefront of a 16-byte load, for the fragments of A and of B alike.
    static __device__ __forceinline__ int lane_m(int lane) { return lane / 2 % 2 + lane / 4 / (LANES_N / 2) * 2; }
    static __device__ __forceinline__ int lane_n(int lane) { return lane % 2 + lane / 4 % (LANES_N / 2) * 2; }

    // Row (column) in the block tile of this warp's first element, and of this thread's.
    static __device__ __forceinline__ int warp_row() { return threadIdx.x / 32 / WARPS_N * WM; }
    static __device__ __forceinline__ int warp_column() { return threadIdx.x / 32 % WARPS_N * WN; }
    static __device__ __forceinline__ int first_row() { return warp_row() + lane_m(threadIdx.x % 32) * PIECE; }
    static __device__ __forceinline__ int first_column() { return warp_column() + lane_n(threadIdx.x % 32) * PIECE; }

    // Distance from this thread's first row (column) to its i-th.
    static constexpr __device__ __forceinline__ int row(int i) { return i / PIECE * LANES_M * PIECE + i % PIECE; }
    static constexpr __device__ __forceinline__ int column(int j) { return j / PIECE * LANES_N * PIECE + j % PIECE; }

    // Reads one k's worth of a staged operand, `COUNT` elements in pieces `LANES` pieces apart.
    template <int LANES, int COUNT>
    static __device__ __forceinline__ void load(STAGED (&fragment)[COUNT], const STAGED* first) {
#pragma unroll
        for (int piece = 0; piece < COUNT / PIECE; ++piece) {
            const auto vector = *reinterpret_cast<const Vector<STAGED, PIECE>*>(first + piece * LANES * PIECE);
#pragma unroll
            for (int i = 0; i < PIECE; ++i) fragment[piece * PIECE + i] = vector.element[i];
        }
    }
};

// Stores a thread's accumulators, D_WIDTH of a row at once. The tile starts at (row, column) of D; n is a multiple of
// D_WIDTH, so that a vector lies wholly inside or wholly outside.
template <typename TILE, int D_WIDTH, typename GEMM, typename ACCUMULATOR, int TM, int TN>
__device__ __forceinline__ void store_registers(const ACCUMULATOR (&accumulators)[TM][TN], const GEMM& gemm,
                                                long long row, long long column) {
    using OUT = typename GEMM::OUT;
    using SCALE = typename GEMM::SCALE;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const long long to = row + TILE::row(i);
        if (to >= gemm.m) continue;
#pragma unroll
        for (int j = 0; j < TN; j += D_WIDTH) {
            const long long at = column + TILE::column(j);
            if (at >= gemm.n) continue;
            Vector<OUT, D_WIDTH> source{}, result;
            if (gemm.beta != SCALE(0))
                source = *reinterpret_cast<const Vector<OUT, D_WIDTH>*>(gemm.c + gemm.c_offset(to, at));
            ACCUMULATOR values[D_WIDTH];
#pragma unroll
            for (int l = 0; l < D_WIDTH; ++l) values[l] = accumulators[i][j + l];
            elements_of_d(values, source.element, result.element, gemm, static_cast<int>(to), static_cast<int>(at));
            *reinterpret_cast<Vector<OUT, D_WIDTH>*>(gemm.d + gemm.d_offset(to, at)) = result;
        }
    }
}

// The same element by element, for a D whose rows are not aligned or that lies by columns. What the lanes of a warp
// store together would lie 16 bytes apart; they exchange it in shared memory, so that neighbours store neighbours. The
// block's tile starts at (row, column); all threads of the block call it, and `shared` has `Exchange<TILE>::OF_WARP`
// elements for each warp.
template <typename TILE>
struct Exchange {
    static constexpr int ROWS = TILE::PIECE * TILE::LANES_M, COLUMNS = TILE::WARP_COLUMNS, PITCH = COLUMNS + 1;
    static constexpr int OF_WARP = ROWS * PITCH;
};

template <typename TILE, typename GEMM, typename ACCUMULATOR, int TM, int TN>
__device__ __forceinline__ void exchange_and_store(const ACCUMULATOR (&accumulators)[TM][TN], const GEMM& gemm,
                                                   long long row, long long column, ACCUMULATOR* shared) {
    using EXCHANGE = Exchange<TILE>;
    constexpr int ROWS = EXCHANGE::ROWS, COLUMNS = EXCHANGE::COLUMNS, PITCH = EXCHANGE::PITCH;
    const int lane = threadIdx.x % 32;
    ACCUMULATOR* const of_warp = shared + threadIdx.x / 32 * EXCHANGE::OF_WARP;
    ACCUMULATOR* const own = of_warp + TILE::lane_m(lane) * TILE::PIECE * PITCH + TILE::lane_n(lane) * TILE::PIECE;
    row += TILE::warp_row();
    column += TILE::warp_column();
    __syncthreads();  // all warps have read the last tiles of A and B
#pragma unroll
    for (int piece = 0; piece < TM / TILE::PIECE; ++piece) {
#pragma unroll
        for (int i = 0; i < TILE::PIECE; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j) own[i * PITCH + TILE::column(j)] = accumulators[piece * TILE::PIECE + i][j];
        __syncwarp();
        store_shared<ROWS, COLUMNS, PITCH, 32>(of_warp, gemm, row + piece * ROWS, column);
        __syncwarp();
    }
}

// Where a block's tile of D lies. Blocks go down groups of GROUP rows of tiles, column by column, so that those that
// run at one time read few different tiles of A and of B, and L2 keeps them.
struct BlockOrigin {
    unsigned row, column;

    template <int BM, int BN, int GROUP>
    static __device__ __forceinline__ BlockOrigin grouped(int m, int n, unsigned block) {
        const TilePosition tile = grouped_tile<GROUP>(block, tiles_along(m, BM), tiles_along(n, BN));
        return {static_cast<unsigned>(tile.row) * BM, static_cast<unsigned>(tile.column) * BN};
    }
};

}  // namespace warptile
