// Fragments of doubles, each word by a load of its own to the register in which the instruction wants it. A load of 16
// bytes would give two words that lie apart there, and ptxas would copy them.
#pragma once

#include "tile/mma_fragments.cuh"

namespace warptile {

// Which of the warp tile's rows (columns) is row `index` of half `half` of 16-tile `tile16`, so that sixteen lanes,
// which load together, are in sixteen pairs of banks: four rows (lines) of 32 bytes that the swizzle moves apart.
template <bool K_MAJOR>
struct DoublePlacement {
    static constexpr int TILES16 = 1;
    static constexpr bool NEIGHBOURS = !K_MAJOR;
    static __device__ __forceinline__ constexpr int at(int tile16, int half, int index) {
        return 16 * tile16 + (K_MAJOR ? 8 * half + index % 4 * 2 + index / 4
                                      : 4 * half + index % 4 / 2 * 8 + index / 4 * 2 + index % 2);
    }
};

// Loads one operand's 16-tiles of a warp, eight of K at a time: lane 4 g + t has K t and 4 + t of row (column) g of
// each half.
template <typename PANELS, bool FOR_A>
struct DoubleFragmentLoader {
    static constexpr bool K_MAJOR = PANELS::K_MAJOR;
    static constexpr int PARTS = 2, K_BLOCK_BYTES = 64, K_BLOCK_LINES = 8;
    using PLACEMENT = DoublePlacement<K_MAJOR>;
    static_assert(PANELS::SWIZZLED && PANELS::ROW_BYTES == 128, "rows of 128 bytes, swizzled");
    unsigned from;  // what this lane reads first, in the panels

    // `start` is the warp's first row (column) in the tile.
    __device__ __forceinline__ explicit DoubleFragmentLoader(int start) {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, line = PLACEMENT::at(0, 0, g);
        from = K_MAJOR ? PANELS::offset(start + line, 8 * t) : PANELS::offset(t, 8 * (start + line));
    }

    __device__ __forceinline__ void load(double* words, unsigned stage, int tile16, int k_block) const {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                const unsigned chunk = K_MAJOR ? k_block * K_BLOCK_BYTES + part * 32 : half * 32 + part * 64;
                const unsigned lines = K_MAJOR ? tile16 * 16 + half * 8 : k_block * K_BLOCK_LINES + part * 4;
                const unsigned panel = K_MAJOR ? 0 : tile16 * PANELS::PANEL_BYTES;
                ld_shared(words[FOR_A ? half + 2 * part : part + PARTS * half],
                          stage + (from ^ chunk) + lines * PANELS::ROW_BYTES + panel);
            }
    }
};

}  // namespace warptile
