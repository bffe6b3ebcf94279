// A stage in shared memory as TMA writes it and wgmma reads it: K tiles of A and B with the 128-byte swizzle.
#pragma once

#include "ptx/shared_memory.cuh"
#include "tile/traits.cuh"
#include "tile/wgmma_unaligned_a.cuh"

namespace warptile {

// The K tile of one operand: EXTENT rows of A (columns of B), K_EXTENT units along K. A *line* is what is contiguous in
// the matrix: along K with K_MAJOR, else along M (N). Lines are cut into *panels* of 128 bytes, the width of the
// swizzle. A panel is one TMA box. The last one of an MN-major tile may be narrower, and its rows in shared memory are
// 128 bytes apart all the same: a kernel that has a tensor map for it loads the tile's LOADED_BYTES alone, others load
// what lies beside the tile too.
//
// A tile at the end of the matrix has fewer rows (columns) `inside`, in a cluster perhaps none. TMA fills what is
// outside with zeros, which costs all SMs together several times as much as loading as many bytes. With a tensor map of
// the box that lies across the end, `load_inside` leaves that out: the rest of the stage keeps its bytes, and they meet
// in rows and columns of accumulators that lie outside D.
template <typename ELEMENT, int EXTENT, int K_EXTENT, bool K_MAJOR_>
struct WgmmaSmemTile {
    static constexpr bool K_MAJOR = K_MAJOR_;
    static constexpr int ROW = 128 / sizeof(ELEMENT), LINES = K_MAJOR ? EXTENT : K_EXTENT;
    static constexpr int PANELS = ((K_MAJOR ? K_EXTENT : EXTENT) + ROW - 1) / ROW;
    static constexpr int PANEL_BYTES = 128 * LINES, BYTES = PANELS * PANEL_BYTES;
    // Bytes of a row of the last panel: 16, or whole sectors of 32.
    static constexpr int BEYOND = ((K_MAJOR ? K_EXTENT : EXTENT) - (PANELS - 1) * ROW) * sizeof(ELEMENT);
    static constexpr int LAST_ROW_BYTES = BEYOND == 16 ? BEYOND : (BEYOND + 31) / 32 * 32;
    static constexpr int MAPS = LAST_ROW_BYTES < 128 ? 2 : 1, LOADED_BYTES = BYTES - (128 - LAST_ROW_BYTES) * LINES;
    static constexpr int K_BLOCKS = K_EXTENT * static_cast<int>(sizeof(ELEMENT)) / 32;  // one wgmma takes 32 bytes of K
    static_assert(K_EXTENT % ROW == 0 || !K_MAJOR, "lines along K are whole panels");
    static_assert(K_MAJOR || (sizeof(ELEMENT) == 2 && K_EXTENT % 16 == 0), "MN-major operands: 16-bit elements alone");
    static_assert(LINES % 8 == 0 && LINES <= 256, "a swizzle atom has eight lines; a box has 256 at most");

    // Starts the loads of the tile at row (column) `start` and at `k_offset`; their bytes complete `barrier`. `last` is
    // the map of the last panel. BATCHED: maps have three dimensions. EVICT_FIRST: no other CTA loads these bytes, and
    // L2 need not keep them.
    template <bool BATCHED = false, bool EVICT_FIRST = false>
    static __device__ __forceinline__ void load(unsigned to, const TensorMap& map, const TensorMap& last, int start,
                                                int k_offset, unsigned barrier, int batch = 0) {
        const int x = K_MAJOR ? k_offset : start, y = K_MAJOR ? start : k_offset;
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel)
            load_box<BATCHED, EVICT_FIRST>(to + panel * PANEL_BYTES, panel == PANELS - 1 ? last : map, x + panel * ROW,
                                           y, barrier, batch);
    }
    template <bool BATCHED = false, bool EVICT_FIRST = false>
    static __device__ __forceinline__ void load(unsigned to, const TensorMap& map, int start, int k_offset,
                                                unsigned barrier, int batch = 0) {
        load<BATCHED, EVICT_FIRST>(to, map, map, start, k_offset, barrier, batch);
    }

    // Starts the load of the box at (x, y), or of the same for all CTAs of `cta_mask`.
    template <bool BATCHED, bool EVICT_FIRST>
    static __device__ __forceinline__ void load_box(unsigned to, const TensorMap& map, int x, int y, unsigned barrier,
                                                    int batch) {
        if constexpr (BATCHED) {
            cp_async_bulk_tensor_load_3d(to, map, x, y, batch, barrier);
        } else if constexpr (EVICT_FIRST) {
            cp_async_bulk_tensor_load_2d_evict_first(to, map, x, y, barrier);
        } else {
            cp_async_bulk_tensor_load_2d(to, map, x, y, barrier);
        }
    }
    template <bool BATCHED>
    static __device__ __forceinline__ void load_box_multicast(unsigned to, const TensorMap& map, int x, int y,
                                                              unsigned barrier, unsigned short cta_mask, int batch) {
        if constexpr (BATCHED) {
            cp_async_bulk_tensor_load_3d_multicast(to, map, x, y, batch, barrier, cta_mask);
        } else {
            cp_async_bulk_tensor_load_2d_multicast(to, map, x, y, barrier, cta_mask);
        }
    }

    // Lines that each of SHARES CTAs loads which need the same tile: equal parts, where these are whole swizzle atoms
    // of eight lines; else all lines, and the CTAs take turns at K tiles.
    template <int SHARES>
    static constexpr int LINES_AT_ONCE = LINES % (8 * SHARES) == 0 ? LINES / SHARES : LINES;
    template <int SHARES>
    static __device__ __forceinline__ bool is_turn_of(int share, int k_offset) {
        return LINES_AT_ONCE<SHARES> < LINES || k_offset / K_EXTENT % SHARES == share;
    }

    // Bytes that `load_inside` loads, all CTAs of a cluster together.
    static __device__ __forceinline__ int loaded_bytes(int inside) {
        if (inside >= EXTENT) return LOADED_BYTES;
        inside = max(inside, 0);
        if (K_MAJOR) return inside * 128 * PANELS;
        const int beyond = inside % ROW * static_cast<int>(sizeof(ELEMENT));
        return (inside / ROW * 128 + (beyond + 15) / 16 * 16) * LINES;
    }

    // As `load`, or as `load_multicast` with SHARES > 1, of a tile of which so many rows (columns) are inside. The
    // first MAPS of `maps` are those of a tile that is inside as a whole; the next is that of the box that lies across
    // the end of the matrix.
    template <int SHARES, bool BATCHED = false, bool EVICT_FIRST = false>
    static __device__ __forceinline__ void load_inside(unsigned to, const TensorMap* maps, int start, int k_offset,
                                                       unsigned barrier, int share, unsigned short cta_mask, int batch,
                                                       int inside) {
        constexpr int AT_ONCE = LINES_AT_ONCE<SHARES>;
        if (!is_turn_of<SHARES>(share, k_offset)) return;
        const int line = AT_ONCE < LINES ? share * AT_ONCE : 0;
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel) {
            const bool last = panel == PANELS - 1;
            const int units = K_MAJOR ? AT_ONCE : last ? EXTENT - panel * ROW : ROW;  // of rows (columns) in this box
            const int units_inside = inside - (K_MAJOR ? line : panel * ROW);
            const TensorMap& map = units_inside < units ? maps[MAPS] : maps[last ? MAPS - 1 : 0];
            const int x = (K_MAJOR ? k_offset : start) + panel * ROW, y = (K_MAJOR ? start : k_offset) + line;
            const unsigned at = to + panel * PANEL_BYTES + line * 128;
            if (units_inside > 0) {
                if constexpr (SHARES > 1) {
                    load_box_multicast<BATCHED>(at, map, x, y, barrier, cta_mask, batch);
                } else {
                    load_box<BATCHED, EVICT_FIRST>(at, map, x, y, barrier, batch);
                }
            }
        }
    }

    // Starts the loads of the first `boxes` boxes of LINES_OF_BOX lines each, of a tile whose lines run along K.
    template <int LINES_OF_BOX>
    static __device__ __forceinline__ void load_boxes(unsigned to, const TensorMap& map, int start, int k_offset,
                                                      unsigned barrier, int boxes) {
        static_assert(K_MAJOR && LINES_OF_BOX % 8 == 0, "a box is whole swizzle atoms of eight lines");
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel)
#pragma unroll 1
            for (int box = 0; box < boxes; ++box)
                cp_async_bulk_tensor_load_2d(to + panel * PANEL_BYTES + box * LINES_OF_BOX * 128, map,
                                             k_offset + panel * ROW, start + box * LINES_OF_BOX, barrier);
    }

    // Starts the loads of the first `k_blocks` blocks of K, of a tile whose lines run along M (N). The map's box has
    // the lines of one block.
    static constexpr int K_BLOCK_LINES = 32 / sizeof(ELEMENT), K_BLOCK_BYTES = PANELS * K_BLOCK_LINES * 128;
    static __device__ __forceinline__ void load_k_blocks(unsigned to, const TensorMap& map, int start, int k_offset,
                                                         unsigned barrier, int k_blocks) {
        static_assert(!K_MAJOR && K_BLOCK_LINES % 8 == 0, "a block of K is whole swizzle atoms of eight lines");
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel)
#pragma unroll 1
            for (int line = 0; line < k_blocks * K_BLOCK_LINES; line += K_BLOCK_LINES)
                cp_async_bulk_tensor_load_2d(to + panel * PANEL_BYTES + line * 128, map, start + panel * ROW,
                                             k_offset + line, barrier);
    }

    // Overwrites lines from `first` up to `end` with zeros; the work of THREADS threads, of which this is `thread`.
    template <int THREADS>
    static __device__ __forceinline__ void clear_lines(unsigned at, int first, int end, int thread) {
#pragma unroll 1
        for (int panel = 0; panel < PANELS; ++panel)
#pragma unroll 1
            for (int byte = (first * 8 + thread) * 16; byte < end * 128; byte += THREADS * 16)
                st_shared(at + panel * PANEL_BYTES + byte, Packet<16>{});
    }

    // Multicast to all SHARES CTAs of `cta_mask`, which need this tile; this is the `share`-th of them, and loads
    // LINES_AT_ONCE.
    template <int SHARES, bool BATCHED = false>
    static __device__ __forceinline__ void load_multicast(unsigned to, const TensorMap& map, const TensorMap& last,
                                                          int start, int k_offset, unsigned barrier, int share,
                                                          unsigned short cta_mask, int batch = 0) {
        if (!is_turn_of<SHARES>(share, k_offset)) return;
        const int line = LINES_AT_ONCE<SHARES> < LINES ? share * LINES_AT_ONCE<SHARES> : 0;
#pragma unroll
        for (int panel = 0; panel < PANELS; ++panel) {
            const int x = (K_MAJOR ? k_offset : start) + panel * ROW, y = (K_MAJOR ? start : k_offset) + line;
            load_box_multicast<BATCHED>(to + panel * PANEL_BYTES + line * 128, panel == PANELS - 1 ? last : map, x, y,
                                        barrier, cta_mask, batch);
        }
    }
    template <int SHARES, bool BATCHED = false>
    static __device__ __forceinline__ void load_multicast(unsigned to, const TensorMap& map, int start, int k_offset,
                                                          unsigned barrier, int share, unsigned short cta_mask,
                                                          int batch = 0) {
        load_multicast<SHARES, BATCHED>(to, map, map, start, k_offset, barrier, share, cta_mask, batch);
    }

    // wgmma reads this tile from shared memory: there are no fragments to load.
    struct FragmentLoader {
        __device__ __forceinline__ FragmentLoader(const ELEMENT*, long long) {}
    };

    // The matrix descriptor of a tile at a shared address. PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory
    // Layout", "Matrix Descriptor Format": bits 62-63 name the swizzle (1: 128 bytes); bits 32-45 hold the stride byte
    // offset, 1024 from one atom of eight lines to the next; bits 16-29 hold the leading byte offset, here from one
    // panel of an MN-major operand to the next; bits 0-13 the start address; all of them without their lowest four
    // bits. In a cluster bits 24 and up of a shared address name the CTA. The mask keeps the 18 bits that the address
    // field has room for: otherwise the rank would spill over into the leading byte offset.
    static __device__ __forceinline__ unsigned long long descriptor(unsigned at) {
        constexpr unsigned long long SWIZZLE_128 = 1ull << 62, STRIDE = 1024ull >> 4 << 32;
        constexpr unsigned long long LEADING = static_cast<unsigned long long>(PANEL_BYTES) >> 4 << 16;
        return SWIZZLE_128 | STRIDE | LEADING | (at & 0x3ffff) >> 4;
    }

    // What to add to the descriptor, in its units of 16 bytes, for row (column) `row` and block `k_block` of 32 bytes
    // of K. Within a panel a K-major tile advances by 32 bytes: the hardware applies the swizzle to the sum.
    static __device__ __forceinline__ constexpr unsigned descriptor_offset(int row, int k_block) {
        return (K_MAJOR ? row * 128 + k_block / 4 * PANEL_BYTES + k_block % 4 * 32
                        : row / 64 * PANEL_BYTES + k_block * 16 * 128) >>
               4;
    }
};

// One stage: the K tile of A, then that of B. UNALIGNED_A: A is not aligned for TMA's swizzle and goes through
// registers.
template <typename OPERATION, typename TILE, bool UNALIGNED_A = false>
struct WgmmaStage {
    using UNALIGNED = typename Choice<OPERATION::A_COLUMN_MAJOR,
                                      WgmmaUnalignedPanels<typename OPERATION::ELEMENT, TILE::BM, TILE::BK>,
                                      WgmmaUnalignedA<typename OPERATION::ELEMENT, TILE::BM, TILE::BK>>::type;
    using A = typename Choice<
        UNALIGNED_A, UNALIGNED,
        WgmmaSmemTile<typename OPERATION::ELEMENT, TILE::BM, TILE::BK, !OPERATION::A_COLUMN_MAJOR>>::type;
    using B = WgmmaSmemTile<typename OPERATION::ELEMENT, TILE::BN, TILE::BK, OPERATION::B_COLUMN_MAJOR>;
    static constexpr int B_OFFSET = A::BYTES, BYTES = A::BYTES + B::BYTES;
    static_assert(B_OFFSET % 1024 == 0 && BYTES % 1024 == 0, "swizzled tiles are aligned to 1024 bytes");
};

}  // namespace warptile
