// Operands whose lines along K begin anywhere, copied onto 16-byte boundaries by warps that have nothing else to do,
// beside the products of what has been copied.
#pragma once

#include "copy/lines.cuh"
#include "ptx/flag.cuh"
#include "ptx/tensor_copy.cuh"
#include "tile/wgmma_output_panels.cuh"

namespace warptile {

// Lines of A or of B, and their copies; none of an operand that is not copied. Pitches in bytes.
struct CopiedLines {
    const char* source;
    char* target;
    unsigned source_pitch, target_pitch;
    int lines;
};

// Copies in the order in which tiles need them, in *slices*: the lines that the tiles of one turn of all blocks are the
// first to need, over SPAN bytes of depth. All blocks share each slice; a counter says when it can be read. Counters
// are zero when a launch begins and when it ends.
template <typename SCHEDULE, int STEP_BYTES, int UNIT_BYTES, int WARPS>
struct WgmmaCopies {
    // A warp has a span of LINES lines under way at once, APART from each other: they begin equally far from 16 bytes.
    static constexpr int LINES = 2, PIECES = 2, PIECE = operand_copies::PIECE, SPAN = PIECES * 32 * PIECE;
    static constexpr int APART = PIECE / UNIT_BYTES;
    static constexpr int STEPS = SPAN / STEP_BYTES;  // of depth, of a slice
    static constexpr int TURNS = 31;                 // that are told apart: the last of them has all the rest
    static_assert(SPAN % STEP_BYTES == 0, "a slice has whole steps");

    int m, n;
    CopiedLines a, b;
    int bytes;  // of a line
    unsigned* counters;

    // The host sees to it that a line has a span and 32 bytes.
    __device__ __forceinline__ int slices() const { return (anew(bytes) + SPAN - 1) / SPAN; }
    __device__ __forceinline__ unsigned warps() const { return gridDim.x * WARPS; }

    // Registers are few: what is computed of this is not kept.
    template <typename VALUE>
    static __device__ __forceinline__ VALUE anew(VALUE value) {
        asm volatile("" : "+r"(value));
        return value;
    }

    // The first lines of A and of B that no tile needs before turn `turn`.
    __device__ __forceinline__ void begin(int turn, int& of_a, int& of_b) const {
        of_a = m, of_b = n;
        if (turn < TURNS) SCHEDULE::extents(m, n, turn, of_a, of_b);
        of_a = min(of_a, a.lines);
        of_b = min(of_b, b.lines);
    }

    // Whether turn `turn` has slices of its own.
    __device__ __forceinline__ bool has_slices(int turn) const {
        int from_a, from_b, to_a, to_b;
        begin(turn, from_a, from_b);
        begin(turn + 1, to_a, to_b);
        return from_a < to_a || from_b < to_b;
    }

    // By one thread of a block, once for each slice: tensor copies can read it.
    __device__ __forceinline__ void wait_for(int slice) const {
        wait_for_counter(counters + slice, warps());
        fence_async_proxy_global();
        leave_counter(counters + slice, warps(), gridDim.x);
    }

    __device__ __forceinline__ void arrive(int slice) const {
        fence_async_proxy_global();
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive_at_counter(counters + slice, warps(), gridDim.x);
    }

    // Warp `warp` of all of them copies its part.
    __device__ __forceinline__ void run(unsigned warp) const {
        int of_a, of_b;  // `begin` of the turn that has the lane's number
        begin(threadIdx.x % 32, of_a, of_b);
        int due = -1;  // a slice of which this warp has copied its part
        unsigned unit = warp;
#pragma unroll 1
        for (int turn = 0; turn < TURNS; ++turn) {
            if (lines_of(of_a, turn) == 0 && lines_of(of_b, turn) == 0) continue;
#pragma unroll 1
            for (int slice = 0; slice < slices(); ++slice) {
                unit = copy_slice(a, unit, of_a, turn, slice, due);
                unit = copy_slice(b, unit, of_b, turn, slice, due);
                if (due >= 0) arrive(due);
                due = turn * slices() + slice;
            }
        }
        if (due >= 0) arrive(due);
    }

    static __device__ __forceinline__ int lines_of(int begins, int turn) {
        return __shfl_sync(~0u, begins, turn + 1) - __shfl_sync(~0u, begins, turn);
    }

    // Copies a warp's units of a slice, from unit `unit` on; returns how far the next is behind the last.
    __device__ __forceinline__ unsigned copy_slice(const CopiedLines& of, unsigned unit, int begins, int turn,
                                                   int slice, int& due) const {
        const unsigned from = __shfl_sync(~0u, begins, turn), to = __shfl_sync(~0u, begins, turn + 1);
        const unsigned units = (to - from + APART * LINES - 1) / (APART * LINES) * APART;
#pragma unroll 1
        for (; unit < units; unit += warps()) {
            const unsigned line = from + unit / APART * (APART * LINES) + unit % APART;
            if (line < to) copy(of, line, to, slice * SPAN, due);
        }
        return unit - units;
    }

    // Copies the span from byte `offset` on of LINES lines from `line` on, of those before `to`.
    __device__ __forceinline__ void copy(const CopiedLines& of, unsigned line, unsigned to, unsigned offset,
                                         int& due) const {
        if (line + offset == 0 || line + (LINES - 1) * APART + 2 >= of.lines) {
            copy_at_the_ends(of, line, to, offset);
            return;
        }
        // Wherever such a span begins, the source has 16 bytes before it, and behind it: there are two lines behind.
        const unsigned long long from = address(of, line, offset);
        const char* const begin = reinterpret_cast<const char*>(from / PIECE * PIECE);
        const unsigned lane = lane_anew();
        const char* at = begin + lane * PIECE;
        uint4 pieces[LINES][PIECES];
#pragma unroll
        for (int i = 0; i < LINES; ++i) {
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece)
                pieces[i][piece] = operand_copies::load_piece<false>(at + piece * 32 * PIECE);
            at += static_cast<unsigned long long>(of.source_pitch) * APART;
        }
        // The piece behind those of line i is lane i's.
        at = begin + static_cast<unsigned long long>(of.source_pitch) * (lane % LINES * APART) + SPAN;
        const uint4 behind = operand_copies::load_piece<false>(at);
        // With loads under way there is time to wait until what was stored before can be read.
        if (due >= 0) arrive(due);
        due = -1;
        store(of, anew(line), to, anew(offset), pieces, behind);
    }

    // The same where the source begins or ends, line by line: what is outside is not read.
    __device__ __forceinline__ void copy_at_the_ends(const CopiedLines& of, unsigned line, unsigned to,
                                                     unsigned offset) const {
        const char* const end = reinterpret_cast<const char*>(address(of, of.lines - 1, bytes));
#pragma unroll 1
        for (int i = 0; i < LINES && line < to; ++i, line += APART) {
            const char* const begin = reinterpret_cast<const char*>(address(of, line, offset) / PIECE * PIECE);
            uint4 pieces[1][PIECES];
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece)
                pieces[0][piece] = operand_copies::load_units<UNIT_BYTES>(begin + (piece * 32 + lane_anew()) * PIECE,
                                                                          of.source, end);
            store(of, line, to, offset, pieces, operand_copies::load_units<UNIT_BYTES>(begin + SPAN, of.source, end));
        }
    }

    static __device__ __forceinline__ unsigned long long address(const CopiedLines& of, unsigned line, unsigned byte) {
        const auto source = reinterpret_cast<unsigned long long>(of.source);
        return source + static_cast<unsigned long long>(line) * of.source_pitch + byte;
    }

    // Writes a span of COUNT lines, shifted to where they begin.
    template <int COUNT>
    __device__ __forceinline__ void store(const CopiedLines& of, unsigned line, unsigned to, unsigned offset,
                                          const uint4 (&pieces)[COUNT][PIECES], const uint4& behind) const {
        const unsigned shift = static_cast<unsigned>(address(of, line, offset)) % PIECE;
        switch (shift / 4) {
            case 0: store_from<0>(of, line, to, offset, shift % 4 * 8, pieces, behind); break;
            case 1: store_from<1>(of, line, to, offset, shift % 4 * 8, pieces, behind); break;
            case 2: store_from<2>(of, line, to, offset, shift % 4 * 8, pieces, behind); break;
            default: store_from<3>(of, line, to, offset, shift % 4 * 8, pieces, behind); break;
        }
    }

    // The same for lines that begin `bits` behind word WORD of a piece.
    template <int WORD, int COUNT>
    __device__ __forceinline__ void store_from(const CopiedLines& of, unsigned line, unsigned to, unsigned offset,
                                               unsigned bits, const uint4 (&pieces)[COUNT][PIECES],
                                               const uint4& behind) const {
        const unsigned lane = lane_anew(), left = bytes - offset;
        char* target = of.target + (static_cast<unsigned long long>(line) * of.target_pitch + offset + lane * PIECE);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const unsigned beyond[4] = {behind.x, behind.y, behind.z, behind.w};
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) {
                const bool last = piece + 1 == PIECES;
                const uint4 own = pieces[i][piece], after = pieces[i][last ? piece : piece + 1];
                const unsigned first[4] = {after.x, after.y, after.z, after.w};
                unsigned words[8] = {own.x, own.y, own.z, own.w};
#pragma unroll
                for (int word = 0; word <= WORD; ++word) {
                    // From the lane that follows; the last one's is the first of the next piece, or `behind`.
                    words[4 + word] = __shfl_sync(~0u, !last && lane == 0 ? first[word] : words[word], (lane + 1) % 32);
                    if (last) {
                        const unsigned next = __shfl_sync(~0u, beyond[word], i);
                        if (lane == 31) words[4 + word] = next;
                    }
                }
                if (line + i * APART < to && (piece * 32 + lane) * PIECE < left) {
                    uint4 shifted;
                    unsigned* const to_words[] = {&shifted.x, &shifted.y, &shifted.z, &shifted.w};
#pragma unroll
                    for (int word = 0; word < 4; ++word)
                        *to_words[word] = __funnelshift_r(words[WORD + word], words[WORD + word + 1], bits);
                    *reinterpret_cast<uint4*>(target + piece * 32 * PIECE) = shifted;
                }
            }
            target += static_cast<unsigned long long>(of.target_pitch) * APART;
        }
    }
};

}  // namespace warptile
