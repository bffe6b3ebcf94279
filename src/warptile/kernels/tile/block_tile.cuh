// The levels of tiling above the instruction: block tile and warp tile.
#pragma once

namespace warptile {

// A block computes BM x BN of D, BK units along K at a time; each of its warps owns WM x WN of that.
template <int BM_, int BN_, int BK_, int WM_, int WN_>
struct Tile {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_;
    static constexpr int WARPS_M = BM / WM, WARPS_N = BN / WN, WARPS = WARPS_M * WARPS_N;
    static constexpr int THREADS = WARPS * 32;
    static_assert(BM % WM == 0 && BN % WN == 0, "a block tile is a whole number of warp tiles");
    static_assert(THREADS <= 1024, "a block has at most 1024 threads");

    // Where this thread's warp tile starts in the block tile.
    static __device__ __forceinline__ int warp_row() { return threadIdx.x / 32 / WARPS_N * WM; }
    static __device__ __forceinline__ int warp_column() { return threadIdx.x / 32 % WARPS_N * WN; }
};

}  // namespace warptile
