// Panels of D in shared memory, and their way to D where TMA cannot store them.
#pragma once

#include "ptx/shared.cuh"
#include "ptx/warpgroup.cuh"
#include "tile/gemm.cuh"
#include "tile/swizzle.cuh"

namespace warptile {

// The panels that 64 rows of a tile, BN columns wide, are stored in. A *line* of a panel is contiguous in D: W elements
// of a row, or of a column where D is column-major; a panel has LINES of them.
// Of 16-bit elements they have up to MOST columns, as many as may be: each costs a warpgroup two meetings. With MOST = 0
// lines are powers of two.
template <typename OUT, int BN, bool D_COLUMN_MAJOR, int MOST>
struct OutputPanels {
    static constexpr int FITS = 128 / sizeof(OUT);

    // The largest power of two up to `most` that divides BN.
    static __device__ constexpr int part(int most) { return BN % most == 0 ? most : part(most / 2); }

    // Columns of a panel. Those of D may be any number of lines. Parts of rows are 128 or 64 bytes, or else an odd number
    // of 16 bytes, of which eight that lie below each other fall into different banks without being swizzled.
    static __device__ constexpr int columns() {
        int some = BN % 64 == 0 ? 64 : !D_COLUMN_MAJOR && BN % 32 == 0 ? 32 : MOST;
        while (some > 8 && (BN % some || !(D_COLUMN_MAJOR || some / 8 % 2 || (some & (some - 1)) == 0))) some -= 8;
        return some;
    }

    static constexpr bool WIDE = MOST > 0 && sizeof(OUT) == 2;
    static constexpr int W = D_COLUMN_MAJOR ? (FITS < 64 ? FITS : 64) : WIDE ? columns() : part(FITS);
    static constexpr int LINES = !D_COLUMN_MAJOR ? 64 : WIDE ? columns() : part(64);
    static constexpr int ROW_BYTES = W * sizeof(OUT), BYTES = WIDE ? ROW_BYTES * LINES : 64 * 128;
    static constexpr int BUFFERS = BYTES <= 72 * 128 ? 2 : 1;
    static constexpr int ROWS = D_COLUMN_MAJOR ? W : 64, COLUMNS = D_COLUMN_MAJOR ? LINES : W;
    static constexpr int WORDS = ROW_BYTES * LINES / 4 / 128;  // of a thread of the four warps that share it
    static constexpr int DOWN = 64 / ROWS, ACROSS = BN / COLUMNS, COUNT = DOWN * ACROSS;
    static_assert(ROW_BYTES >= 16, "TMA moves rows of at least 16 bytes");

    static __device__ __forceinline__ unsigned offset(unsigned line, unsigned byte) {
        const unsigned inside = line * ROW_BYTES + byte;
        if constexpr (ROW_BYTES == 32 || ROW_BYTES == 64 || ROW_BYTES == 128) return swizzled<ROW_BYTES>(inside);
        return inside;
    }
};

// The number of this lane, read anew: what is computed of it for one panel is not kept in registers for the next.
__device__ __forceinline__ unsigned lane_anew() {
    unsigned lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// The 16 bytes that begin `bytes` (less than 16) behind the first of two neighbouring packets of 16; UNIT divides `bytes`.
template <int UNIT>
__device__ __forceinline__ Packet<16> shifted(const Packet<16>& first, const Packet<16>& second, unsigned bytes) {
    unsigned words[8] = {first.bits.x,  first.bits.y,  first.bits.z,  first.bits.w,
                         second.bits.x, second.bits.y, second.bits.z, second.bits.w};
#pragma unroll
    for (int i = 0; i < 6; ++i) words[i] = bytes & 8 ? words[i + 2] : words[i];
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = bytes & 4 ? words[i + 1] : words[i];
    if constexpr (UNIT < 4) {
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], bytes % 4 * 8);
    }
    return {{words[0], words[1], words[2], words[3]}};
}

// Copies a panel to D, its first element at (row, column) of the matrix that begins `matrix` elements behind gemm.d, along
// lines: 16 bytes at a time from the first multiple of 16 bytes of a line on, what is before and behind one by one. By
// WARPS warps, of which this is number `warp`. ALIGNED: all lines begin at such multiples.
//
// Every eighth line (or fewer) begins equally far from a multiple of 16 bytes, whatever the pitch, and is swizzled in the
// same way: one warp alone copies these one after the other. Several find anew for each line where it begins: they need
// fewer registers.
template <typename PANELS, bool ALIGNED, int WARPS, typename OPERATION>
__device__ __forceinline__ void copy_panel(unsigned from, const Gemm<OPERATION>& gemm, long long matrix, int row,
                                           int column, int warp) {
    using OUT = typename OPERATION::OUT;
    constexpr unsigned SIZE = sizeof(OUT), TOGETHER = 16 / SIZE, PER_LINE = PANELS::W / TOGETHER;
    constexpr int AT_ONCE = 32 / PER_LINE, PERIOD = AT_ONCE > 8 ? AT_ONCE : 8;
    constexpr int SPAN = WARPS == 1 ? PERIOD : PANELS::LINES, ROUNDS = PANELS::LINES / SPAN;
    const int first_line = OPERATION::D_COLUMN_MAJOR ? column : row, first = OPERATION::D_COLUMN_MAJOR ? row : column;
    const int lines = min(PANELS::LINES, (OPERATION::D_COLUMN_MAJOR ? gemm.n : gemm.m) - first_line);
    const int inside = min(PANELS::W, (OPERATION::D_COLUMN_MAJOR ? gemm.m : gemm.n) - first);
    if (inside <= 0) return;
    const unsigned elements = inside, lane = lane_anew(), piece = lane % PER_LINE;
#pragma unroll 1
    for (int at = warp * AT_ONCE + lane / PER_LINE; at < min(SPAN, lines); at += WARPS * AT_ONCE) {
        OUT* const to = gemm.d + (matrix + (first_line + at) * gemm.ldd + first);
        // Elements up to the first multiple of 16 bytes, as many of those that follow as go together, and the others.
        const unsigned bytes = -static_cast<unsigned>(reinterpret_cast<unsigned long long>(to)) % 16;
        const unsigned lead = ALIGNED ? 0 : min(bytes / SIZE, elements);
        const unsigned whole = (elements - lead) / TOGETHER * TOGETHER, others = elements - whole;
        const auto other = [&](unsigned number) { return number < lead ? number : number + whole; };
        const unsigned here = from + PANELS::offset(at, piece * 16);
        const unsigned behind = from + PANELS::offset(at, min(piece + 1, PER_LINE - 1) * 16);
        OUT* next = to + (lead + piece * TOGETHER);
#pragma unroll 2
        for (int round = 0; round < ROUNDS; ++round, next += SPAN * gemm.ldd) {
            const unsigned lower = round * SPAN * PANELS::ROW_BYTES;
            auto packet = load_packet<16>(here + lower);
            if (!ALIGNED) packet = shifted<SIZE>(packet, load_packet<16>(behind + lower), bytes);
            if (at + round * SPAN < lines && piece * TOGETHER < whole) *reinterpret_cast<Packet<16>*>(next) = packet;
        }
        if constexpr (ROUNDS > 1) {
            const unsigned single = piece < others ? other(piece) : 0, alone = from + PANELS::offset(at, single * SIZE);
            next = to + single;
#pragma unroll 2
            for (int round = 0; round < ROUNDS; ++round, next += SPAN * gemm.ldd) {
                const auto value = load_packet<SIZE>(alone + round * SPAN * PANELS::ROW_BYTES);
                if (at + round * SPAN < lines && piece < others) *reinterpret_cast<Packet<SIZE>*>(next) = value;
            }
        }
        // Other elements than one a thread and line: less than whole lines are inside D, or a line has few threads.
        if (ROUNDS == 1 || inside < PANELS::W || PER_LINE < TOGETHER)
#pragma unroll 1
            for (unsigned number = ROUNDS == 1 ? piece : piece + PER_LINE; number < others; number += PER_LINE)
#pragma unroll 1
                for (int round = 0; round < ROUNDS; ++round)
                    if (at + round * SPAN < lines)
                        *reinterpret_cast<Packet<SIZE>*>(to + (round * SPAN * gemm.ldd + other(number))) =
                            load_packet<SIZE>(from + PANELS::offset(at + round * SPAN, other(number) * SIZE));
    }
}

// Elements between the multiple of 16 bytes before an element and it.
template <typename OUT>
__device__ __forceinline__ int elements_early(const OUT* element) {
    return static_cast<unsigned>(reinterpret_cast<unsigned long long>(element)) % 16 / sizeof(OUT);
}

// Copies what lies inside D of a panel, row-major, that may begin before its first column, one by one; by a warpgroup.
template <typename PANELS, typename OPERATION>
__device__ __forceinline__ void copy_elements(unsigned from, const Gemm<OPERATION>& gemm, long long matrix, int row, int column) {
    constexpr unsigned SIZE = sizeof(typename OPERATION::OUT);
#pragma unroll 1
    for (unsigned i = lane_anew() + threadIdx.x % WARPGROUP / 32 * 32; i < PANELS::LINES * PANELS::W; i += WARPGROUP) {
        const int line = i / PANELS::W, place = i % PANELS::W;
        if (row + line < gemm.m && column + place >= 0 && column + place < gemm.n)
            *reinterpret_cast<Packet<SIZE>*>(gemm.d + (matrix + (row + line) * gemm.ldd + column + place)) =
                load_packet<SIZE>(from + PANELS::offset(line, place * SIZE));
    }
}

}  // namespace warptile
