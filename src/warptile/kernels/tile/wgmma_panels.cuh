// One operand's part of a stage as TMA writes it and wgmma reads it: panels whose rows have 128 bytes, swizzled.
#pragma once

#include "tile/traits.cuh"
#include "tile/wgmma_rows.cuh"

namespace warptile {

// An operand of which a block needs EXTENT rows (of A) or columns (of B), DEPTH units deep. A *line* is contiguous in the
// matrix: along K with K_MAJOR, else along M (N). Lines are cut into panels of 128 bytes each, the last one filled up.
template <typename ELEMENT, int EXTENT, int DEPTH, bool K_MAJOR_>
struct WgmmaPanels {
    static constexpr bool K_MAJOR = K_MAJOR_;
    static constexpr int ROW = 128 / sizeof(ELEMENT), LINES = K_MAJOR ? EXTENT : DEPTH;
    static constexpr int PANELS = ((K_MAJOR ? DEPTH : EXTENT) + ROW - 1) / ROW;
    static constexpr int PANEL_BYTES = 128 * LINES, BYTES = PANELS * PANEL_BYTES;
    static constexpr int SLABS = DEPTH * static_cast<int>(sizeof(ELEMENT)) / 32;
    static_assert(DEPTH % ROW == 0 || !K_MAJOR, "lines along K are whole panels");
    static_assert(K_MAJOR || (sizeof(ELEMENT) == 2 && DEPTH % 16 == 0), "lines along M or N: 16-bit elements alone");
    static_assert(LINES % 8 == 0 && LINES <= 256, "swizzling exchanges chunks of eight rows; a box has 256 at most");

    // Starts the copies of what begins at row (column) `start` and at `depth`; their bytes count for `barrier`. With
    // BATCHED the map is one of several matrices; with ONCE this is the only time that its bytes are loaded.
    template <bool BATCHED = false, bool ONCE = false>
    static __device__ __forceinline__ void load(unsigned to, const TensorMap& map, int start, int depth, unsigned barrier,
                                                int matrix = 0) {
        const int x = K_MAJOR ? depth : start, y = K_MAJOR ? start : depth;
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel)
            if constexpr (BATCHED) {
                load_box(to + panel * PANEL_BYTES, map, x + panel * ROW, y, matrix, barrier);
            } else if constexpr (ONCE) {
                load_box_once(to + panel * PANEL_BYTES, map, x + panel * ROW, y, barrier);
            } else {
                load_box(to + panel * PANEL_BYTES, map, x + panel * ROW, y, barrier);
            }
    }

    // Of SHARES parts of the lines, starts the copies of part `share` into all `blocks` of the cluster.
    template <int SHARES, bool BATCHED = false>
    static __device__ __forceinline__ void load_share(unsigned to, const TensorMap& map, int start, int depth,
                                                      unsigned barrier, int share, unsigned short blocks,
                                                      int matrix = 0) {
        static_assert(LINES % (8 * SHARES) == 0, "shares of whole groups of eight lines");
        const int line = share * (LINES / SHARES);
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel) {
            const int x = (K_MAJOR ? depth : start) + panel * ROW, y = (K_MAJOR ? start : depth) + line;
            const unsigned place = to + panel * PANEL_BYTES + line * 128;
            if constexpr (BATCHED) {
                load_box(place, map, x, y, matrix, barrier, blocks);
            } else {
                load_box(place, map, x, y, barrier, blocks);
            }
        }
    }

    // Nothing to know: `wgmma` reads panels itself.
    struct Reader {
        __device__ __forceinline__ Reader(const ELEMENT*, long long) {}
    };

    // Describes the operand at a shared address to wgmma: PTX ISA, "Matrix Descriptor Format". Groups of eight lines are
    // 1024 bytes apart; where lines run along M or N the next 64 rows (columns) are a panel further on. In a cluster a
    // shared address names its block above bit 23; a descriptor has room for the 18 bits that lie within a block, and the
    // rank would become part of the distance between panels.
    static __device__ __forceinline__ unsigned long long descriptor(unsigned at) {
        constexpr unsigned long long SWIZZLE_128 = 1ull << 62, STRIDE = 1024ull >> 4 << 32;
        constexpr unsigned long long LEADING = static_cast<unsigned long long>(PANEL_BYTES) >> 4 << 16;
        return SWIZZLE_128 | STRIDE | LEADING | (at & 0x3ffff) >> 4;
    }

    // How much further, in 16 bytes as a descriptor counts, row (column) `row` and the slab-th 32 bytes of depth lie.
    static __device__ __forceinline__ constexpr unsigned further(int row, int slab) {
        return (K_MAJOR ? row * 128 + slab / 4 * PANEL_BYTES + slab % 4 * 32 : row / 64 * PANEL_BYTES + slab * 16 * 128) >> 4;
    }
};

// One step of depth in shared memory: A's panels (rows, with ANY_START), then B's panels.
template <typename OPERATION, typename TILE, bool ANY_START = false>
struct WgmmaStage {
    using A = typename Choice<ANY_START, WgmmaRows<typename OPERATION::ELEMENT, TILE::BM, TILE::BK>,
                              WgmmaPanels<typename OPERATION::ELEMENT, TILE::BM, TILE::BK, !OPERATION::A_COLUMN_MAJOR>>::type;
    using B = WgmmaPanels<typename OPERATION::ELEMENT, TILE::BN, TILE::BK, OPERATION::B_COLUMN_MAJOR>;
    static constexpr int B_OFFSET = A::BYTES, BYTES = A::BYTES + B::BYTES;
    static_assert(B_OFFSET % 1024 == 0 && BYTES % 1024 == 0, "swizzled panels start at multiples of 1024 bytes");
};

}  // namespace warptile
