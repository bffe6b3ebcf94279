// Epilogue subtiles: parts of D in shared memory, and their way to global memory where TMA cannot store them.
#pragma once

#include "ptx/shared_memory.cuh"
#include "ptx/warpgroup.cuh"
#include "tile/gemm.cuh"
#include "tile/swizzle.cuh"
#include "tile/vector.cuh"

namespace warptile {

// The subtiles in which 64 rows of a tile, BN columns wide, are stored. A *line* of a subtile is contiguous in D: W
// elements of a row, or of a column where D is column-major; a subtile has LINES of them. Subtiles of 16-bit elements
// are as wide as possible, up to MOST columns, because each costs a warpgroup two named barriers. With MOST = 0 their
// extents are powers of two. IN_PAIRS: there are two buffers, however wide a subtile is; it has at most MOST_IN_PAIRS
// columns unless it would be very narrow.
inline constexpr int MOST_IN_PAIRS = 72, NARROW = 32;

template <typename OUT, int BN, bool D_COLUMN_MAJOR, int MOST, bool IN_PAIRS = false>
struct EpilogueSubtiles {
    static constexpr int FITS = 128 / sizeof(OUT);

    // The largest power of two up to `most` that divides BN.
    static __device__ constexpr int part(int most) { return BN % most == 0 ? most : part(most / 2); }

    // Columns of a subtile. Of a column-major D any number of columns will do. Rows of a row-major D have 128 or 64
    // bytes with a swizzle, or else an odd number of 16-byte chunks: eight rows then begin in different banks without a
    // swizzle.
    static __device__ constexpr int columns(int most) {
        int some = BN % 64 == 0 ? 64 : !D_COLUMN_MAJOR && BN % 32 == 0 ? 32 : most;
        while (some > 8 && (BN % some || !(D_COLUMN_MAJOR || some / 8 % 2 || (some & (some - 1)) == 0))) some -= 8;
        return some;
    }
    static __device__ constexpr int columns() {
        return IN_PAIRS && columns(MOST_IN_PAIRS) >= NARROW ? columns(MOST_IN_PAIRS) : columns(MOST);
    }

    static constexpr bool WIDE = MOST > 0 && sizeof(OUT) == 2;
    static constexpr int W = D_COLUMN_MAJOR ? (FITS < 64 ? FITS : 64) : WIDE ? columns() : part(FITS);
    static constexpr int LINES = !D_COLUMN_MAJOR ? 64 : WIDE ? columns() : part(64);
    static constexpr int ROW_BYTES = W * sizeof(OUT), BYTES = WIDE ? ROW_BYTES * LINES : 64 * 128;
    static constexpr int BUFFERS = IN_PAIRS || BYTES <= 72 * 128 ? 2 : 1;
    static constexpr int ROWS = D_COLUMN_MAJOR ? W : 64, COLUMNS = D_COLUMN_MAJOR ? LINES : W;
    static constexpr int HELD_BYTES = sizeof(OUT) < 2 ? 2 : sizeof(OUT);  // of an element: pairs of them take registers
    static constexpr int WORDS = W * LINES * HELD_BYTES / 4 / 128;  // of a thread, while the subtile is in registers
    static constexpr int DOWN = 64 / ROWS, ACROSS = BN / COLUMNS, COUNT = DOWN * ACROSS;
    static_assert(ROW_BYTES >= 16, "TMA moves rows of at least 16 bytes");

    static __device__ __forceinline__ unsigned offset(unsigned line, unsigned byte) {
        const unsigned inside = line * ROW_BYTES + byte;
        if constexpr (ROW_BYTES == 32 || ROW_BYTES == 64 || ROW_BYTES == 128) return swizzled<ROW_BYTES>(inside);
        return inside;
    }
};

// This lane's number from a volatile read of %laneid: the compiler computes what depends on it anew each time, instead
// of keeping it in registers from one subtile to the next.
__device__ __forceinline__ unsigned reread_laneid() {
    unsigned lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// The 16 bytes at offset `bytes` (less than 16) of two neighbouring packets; UNIT divides `bytes`.
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

// Stores a subtile to D, its first element at (row, column) of the matrix that begins `batch_offset` elements behind
// gemm.d. Each line is stored 16 bytes at a time from its first multiple of 16 bytes on, and the elements before and
// behind one by one. WARPS warps share the work; this is number `warp`. ALIGNED: all lines begin at multiples of 16
// bytes.
//
// Every eighth line (or fewer) begins equally far from a multiple of 16 bytes, whatever the leading dimension, and has
// the same swizzle: a single warp stores these one after the other with the same addresses. Several warps compute the
// addresses of each line anew, which takes fewer registers.
template <typename SUBTILES, bool ALIGNED, int WARPS, typename OPERATION>
__device__ __forceinline__ void store_subtile(unsigned from, const GemmParams<OPERATION>& gemm, long long batch_offset,
                                              int row, int column, int warp) {
    using OUT = typename OPERATION::OUT;
    constexpr unsigned SIZE = sizeof(OUT), TOGETHER = 16 / SIZE, PER_LINE = SUBTILES::W / TOGETHER;
    constexpr int AT_ONCE = 32 / PER_LINE, PERIOD = AT_ONCE > 8 ? AT_ONCE : 8;
    constexpr int SPAN = WARPS == 1 ? PERIOD : SUBTILES::LINES, ROUNDS = SUBTILES::LINES / SPAN;
    const int first_line = OPERATION::D_COLUMN_MAJOR ? column : row, first = OPERATION::D_COLUMN_MAJOR ? row : column;
    const int lines = min(SUBTILES::LINES, (OPERATION::D_COLUMN_MAJOR ? gemm.n : gemm.m) - first_line);
    const int inside = min(SUBTILES::W, (OPERATION::D_COLUMN_MAJOR ? gemm.m : gemm.n) - first);
    if (inside <= 0) return;
    const unsigned elements = inside, lane = reread_laneid(), piece = lane % PER_LINE;
#pragma unroll 1
    for (int at = warp * AT_ONCE + lane / PER_LINE; at < min(SPAN, lines); at += WARPS * AT_ONCE) {
        OUT* const to = gemm.d + (batch_offset + (first_line + at) * gemm.ldd + first);
        // Elements up to the first multiple of 16 bytes, those in whole packets behind it, and all the others.
        const unsigned bytes = -static_cast<unsigned>(reinterpret_cast<unsigned long long>(to)) % 16;
        const unsigned lead = ALIGNED ? 0 : min(bytes / SIZE, elements);
        const unsigned whole = (elements - lead) / TOGETHER * TOGETHER, others = elements - whole;
        const auto other = [&](unsigned number) { return number < lead ? number : number + whole; };
        const unsigned here = from + SUBTILES::offset(at, piece * 16);
        const unsigned behind = from + SUBTILES::offset(at, min(piece + 1, PER_LINE - 1) * 16);
        OUT* next = to + (lead + piece * TOGETHER);
#pragma unroll 2
        for (int round = 0; round < ROUNDS; ++round, next += SPAN * gemm.ldd) {
            const unsigned lower = round * SPAN * SUBTILES::ROW_BYTES;
            auto packet = ld_shared<16>(here + lower);
            if (!ALIGNED) packet = shifted<SIZE>(packet, ld_shared<16>(behind + lower), bytes);
            if (at + round * SPAN < lines && piece * TOGETHER < whole) *reinterpret_cast<Packet<16>*>(next) = packet;
        }
        if constexpr (ROUNDS > 1) {
            const unsigned single = piece < others ? other(piece) : 0,
                           alone = from + SUBTILES::offset(at, single * SIZE);
            next = to + single;
#pragma unroll 2
            for (int round = 0; round < ROUNDS; ++round, next += SPAN * gemm.ldd) {
                const auto value = ld_shared<SIZE>(alone + round * SPAN * SUBTILES::ROW_BYTES);
                if (at + round * SPAN < lines && piece < others) *reinterpret_cast<Packet<SIZE>*>(next) = value;
            }
        }
        // Elements that are left: more than one for each thread of a line, in lines that are not wholly inside D or
        // have few threads.
        if (ROUNDS == 1 || inside < SUBTILES::W || PER_LINE < TOGETHER)
#pragma unroll 1
            for (unsigned number = ROUNDS == 1 ? piece : piece + PER_LINE; number < others; number += PER_LINE)
#pragma unroll 1
                for (int round = 0; round < ROUNDS; ++round)
                    if (at + round * SPAN < lines)
                        *reinterpret_cast<Packet<SIZE>*>(to + (round * SPAN * gemm.ldd + other(number))) =
                            ld_shared<SIZE>(from + SUBTILES::offset(at + round * SPAN, other(number) * SIZE));
    }
}

// A warpgroup stores, one by one, the elements of a row-major subtile that lie inside D; it may begin before column 0.
template <typename SUBTILES, typename OPERATION>
__device__ __forceinline__ void store_subtile_elements(unsigned from, const GemmParams<OPERATION>& gemm,
                                                       long long batch_offset, int row, int column) {
    constexpr unsigned SIZE = sizeof(typename OPERATION::OUT);
#pragma unroll 1
    for (unsigned i = reread_laneid() + threadIdx.x % WARPGROUP / 32 * 32; i < SUBTILES::LINES * SUBTILES::W;
         i += WARPGROUP) {
        const int line = i / SUBTILES::W, at = i % SUBTILES::W;
        if (row + line < gemm.m && column + at >= 0 && column + at < gemm.n)
            *reinterpret_cast<Packet<SIZE>*>(gemm.d + (batch_offset + (row + line) * gemm.ldd + column + at)) =
                ld_shared<SIZE>(from + SUBTILES::offset(line, at * SIZE));
    }
}

}  // namespace warptile
