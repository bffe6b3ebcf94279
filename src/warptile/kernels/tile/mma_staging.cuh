// From global memory into panels: three ways to copy, one walk over a tile.
#pragma once

#include "ptx/cp_async.cuh"
#include "tile/block_tile.cuh"
#include "tile/mma_operation.cuh"
#include "tile/panels.cuh"

namespace warptile {

// BYTES in one load and one store, through registers.
template <int BYTES_>
struct PacketCopy {
    static constexpr int BYTES = BYTES_;
    static __device__ __forceinline__ void whole(unsigned shared, const char* global) {
        st_shared(shared, *reinterpret_cast<const Packet<BYTES>*>(global));
    }
    // Only the first `valid` bytes, a multiple of UNIT, are there; the rest becomes zero.
    template <int UNIT>
    static __device__ __forceinline__ void part(unsigned shared, const char* global, int valid) {
        if (valid >= BYTES) {
            whole(shared, global);
        } else if (valid <= 0) {
            st_shared(shared, Packet<BYTES>{});
        } else {
#pragma unroll
            for (int byte = 0; byte < BYTES; byte += UNIT) {
                Packet<UNIT> unit{};
                if (byte < valid) unit = *reinterpret_cast<const Packet<UNIT>*>(global + byte);
                st_shared(shared + byte, unit);
            }
        }
    }
};

// BYTES by cp.async, bypassing registers. Operands that are aligned to less than its 4 bytes are copied synchronously:
// the barrier that follows every wait makes those visible as well.
template <int BYTES_>
struct AsyncPacketCopy {
    static constexpr int BYTES = BYTES_;
    static __device__ __forceinline__ void whole(unsigned shared, const char* global) {
        if constexpr (BYTES >= 4) {
            cp_async<BYTES>(shared, global);
        } else {
            PacketCopy<BYTES>::whole(shared, global);
        }
    }
    template <int UNIT>
    static __device__ __forceinline__ void part(unsigned shared, const char* global, int valid) {
        if constexpr (BYTES >= 4) {
            cp_async_zero_fill<BYTES>(shared, global, valid);
        } else {
            PacketCopy<BYTES>::template part<UNIT>(shared, global, valid);
        }
    }
};

// Bytes that one access to A, B or D may move: what the operands' alignment allows.
template <int A_, int B_, int D_>
struct AccessBytes {
    static constexpr int A = A_, B = B_, D = D_;
};

// One operand as it is staged, as one thread sees it: neighbouring threads copy neighbouring packets of a
// line. Tiles are staged in order of K.
//
// Lines past the matrix's edge are never needed: K-major, the last line is copied instead, for D's rows
// (columns) that they make are not stored. The ends of lines, and lines past the end of K, are filled with zeros.
template <typename COPY, typename PANELS, int THREADS>
struct PanelIterator {
    static constexpr int UNIT = PANELS::UNIT_BYTES, LINE_PACKETS = PANELS::LINE_BYTES / COPY::BYTES;
    static constexpr int PACKETS = PANELS::LINES * LINE_PACKETS;
    static constexpr int PASSES = (PACKETS + THREADS - 1) / THREADS;
    // With a whole number of lines a pass, a thread stays at one offset within its lines.
    static constexpr bool STRAIGHT = THREADS % LINE_PACKETS == 0 && PACKETS % THREADS == 0;
    static constexpr int LINES_A_PASS = STRAIGHT ? THREADS / LINE_PACKETS : 0;
    // With a whole number of eight lines a pass, swizzling does the same in each.
    static constexpr bool EVEN = STRAIGHT && LINES_A_PASS % 8 == 0;
    // Copies that are written out one after the other: all, unless there are many, or each holds a register.
    static constexpr int AT_ONCE = COPY::BYTES < 4 ? 4 : PASSES <= 16 ? PASSES : 8;
    // Whether `stage_whole` takes tiles that reach past D's edge. It costs instructions, which doubles have to spare.
    static constexpr bool CLIPS = UNIT == 8;

    const char* from;        // this thread's first packet of the tile that is staged next, were all of it there
    long long line_bytes;    // from a line to the next
    long long to_next_tile;  // bytes from a tile to the one that is staged after it
    int line, byte;          // this thread's first packet in the tile
    int last_line;           // K-major: the last line inside the matrix, else the number of lines left
    int units_left;          // units of a line inside the matrix; K-major: of those that are left
    unsigned shared_offset;  // of the first packet

    // `origin` is the tile's corner in the matrix, of which `extent` rows (columns) and `k_left` units of K are left.
    __device__ __forceinline__ PanelIterator(const typename PANELS::ELEMENT* origin, long long ld, int extent,
                                             int k_left)
        : line_bytes(ld * UNIT) {
        const int thread = threadIdx.x;
        line = thread / LINE_PACKETS;
        byte = thread % LINE_PACKETS * COPY::BYTES;
        to_next_tile = PANELS::K_MAJOR ? PANELS::LINE_BYTES : PANELS::K_EXTENT * line_bytes;
        last_line = PANELS::K_MAJOR ? min(extent, PANELS::EXTENT) - 1 : k_left;
        units_left = PANELS::K_MAJOR ? k_left : extent;
        from = reinterpret_cast<const char*>(origin) + line * line_bytes + byte;
        shared_offset = PANELS::offset(line, byte);
    }

    // Stages passes [first, last) of the next tile, all of whose K must be there; `advance` ends the tile.
    __device__ __forceinline__ void stage_whole(unsigned panels, int first = 0, int last = PASSES) {
#pragma unroll AT_ONCE
        for (int pass = first; pass < last; ++pass) {
            if constexpr (STRAIGHT) {
                copy_whole(panels + placed(pass), pass * LINES_A_PASS, 0);
            } else {
                const int index = pass * THREADS + static_cast<int>(threadIdx.x);
                if (PACKETS % THREADS != 0 && index >= PACKETS) break;
                const int l = index / LINE_PACKETS, b = index % LINE_PACKETS * COPY::BYTES;
                copy_whole(panels + PANELS::offset(l, b), l - line, b - byte);
            }
        }
    }

    // Stages the next tile, whatever of it is there.
    __device__ __forceinline__ void stage_part(unsigned panels) {
        // Hardly unrolled: the predicates of more copies would take registers from the mainloop.
#pragma unroll 2
        for (int pass = 0; pass < PASSES; ++pass) {
            const int index = pass * THREADS + static_cast<int>(threadIdx.x);
            if (PACKETS % THREADS != 0 && index >= PACKETS) break;
            const int l = STRAIGHT ? line + pass * LINES_A_PASS : index / LINE_PACKETS;
            const int b = STRAIGHT ? byte : index % LINE_PACKETS * COPY::BYTES;
            const int there = PANELS::K_MAJOR ? min(l, last_line) : l;
            const bool outside = !PANELS::K_MAJOR && l >= last_line;
            const int valid = outside ? 0 : min(max(units_left - b / UNIT, 0), COPY::BYTES / UNIT) * UNIT;
            const char* global = from + (there - line) * line_bytes + (b - byte);
            COPY::template part<UNIT>(panels + PANELS::offset(l, b), global, valid);
        }
    }

    // Goes on to the next tile.
    __device__ __forceinline__ void advance() {
        from += to_next_tile;
        if (PANELS::K_MAJOR) {
            units_left -= PANELS::K_EXTENT;
        } else {
            last_line -= PANELS::K_EXTENT;
        }
    }

  private:
    // Copies the packet `lines` lines and `bytes` bytes behind this thread's first.
    __device__ __forceinline__ void copy_whole(unsigned shared, int lines, int bytes) const {
        if constexpr (CLIPS && PANELS::K_MAJOR) {
            COPY::template part<UNIT>(shared, from + lines * line_bytes + bytes,
                                      lines <= last_line - line ? COPY::BYTES : 0);
        } else if constexpr (CLIPS) {
            const int valid = min(max(units_left - (byte + bytes) / UNIT, 0), COPY::BYTES / UNIT) * UNIT;
            COPY::template part<UNIT>(shared, from + lines * line_bytes + bytes, valid);
        } else {
            COPY::whole(shared, from + lines * line_bytes + bytes);
        }
    }

    __device__ __forceinline__ unsigned placed(int pass) const {
        if constexpr (EVEN) return shared_offset + pass * LINES_A_PASS * PANELS::ROW_BYTES;
        return PANELS::offset(line + pass * LINES_A_PASS, byte);
    }
};

// Both operands of the block tile whose corner is at (row, column) of D.
template <template <int> class COPY, typename OPERATION, typename TILE, typename ACCESS, bool SWIZZLED>
struct MmaTileIterator {
    using STAGE = MmaStage<OPERATION, TILE, SWIZZLED>;
    using ITERATOR_A = PanelIterator<COPY<ACCESS::A>, typename STAGE::A, TILE::THREADS>;
    using ITERATOR_B = PanelIterator<COPY<ACCESS::B>, typename STAGE::B, TILE::THREADS>;

    const int tiles_k;      // tiles along K
    const int whole_tiles;  // the first tiles, which are copied without branches
    ITERATOR_A a;
    ITERATOR_B b;

    __device__ __forceinline__ MmaTileIterator(const GemmParams<OPERATION>& gemm, int row, int column)
        : tiles_k(tiles_along(gemm.k, TILE::BK)),
          whole_tiles((ITERATOR_A::CLIPS || gemm.m - row >= TILE::BM) &&
                              (ITERATOR_B::CLIPS || gemm.n - column >= TILE::BN)
                          ? gemm.k / TILE::BK
                          : 0),
          a(gemm.a_at(row, 0), gemm.lda, gemm.m - row, gemm.k),
          b(gemm.b_at(0, column), gemm.ldb, gemm.n - column, gemm.k) {}

    // Stages part `part` of PARTS of the next tile, which is one of the whole ones: its copies can be spread over the
    // multiplication of a tile.
    template <int PARTS = 1>
    __device__ __forceinline__ void stage_whole(unsigned stage, int part = 0) {
        constexpr int A = ITERATOR_A::PASSES, ALL = A + ITERATOR_B::PASSES;
        const int first = part * ALL / PARTS, last = (part + 1) * ALL / PARTS;
        a.stage_whole(stage, min(first, A), min(last, A));
        b.stage_whole(stage + STAGE::B_OFFSET, max(first, A) - A, max(last, A) - A);
        if (part == PARTS - 1) advance();
    }

    // Stages the next tile, which is number `tile`; past the last one nothing happens.
    __device__ __forceinline__ void stage_any(unsigned stage, int tile) {
        if (tile < whole_tiles) {
            stage_whole(stage);
        } else if (tile < tiles_k) {
            a.stage_part(stage);
            b.stage_part(stage + STAGE::B_OFFSET);
            advance();
        }
    }

  private:
    __device__ __forceinline__ void advance() {
        a.advance();
        b.advance();
    }
};

}  // namespace warptile
