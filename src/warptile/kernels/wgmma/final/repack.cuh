// Fused repacking: warps beside the producer rewrite operands whose lines along K are misaligned onto 16-byte
// boundaries, while the mainloop consumes what they have repacked.
#pragma once

#include "ptx/cp_async_bulk_tensor.cuh"
#include "repack/repacking_pass.cuh"
#include "tile/epilogue_subtile.cuh"
#include "tile/global_barrier.cuh"
#include "wgmma/final/config.cuh"

namespace warptile {

// The lines of A or of B, and where they are repacked; no lines of an operand that needs no repacking. Pitches in
// bytes.
struct RepackedLines {
    const char* source;
    char* target;
    unsigned source_pitch, target_pitch;
    int lines;
};

// Operands are repacked in the order in which tiles need them, in *slices*: the lines that the tiles of one wave are
// the first to need, over SPAN bytes of K. The repack warps of all CTAs share each slice; a counter says when it is
// ready. Counters are zero when a launch begins and when it ends.
template <typename SCHEDULER, int K_TILE_BYTES, int UNIT_BYTES, int WARPS>
struct FusedRepack {
    // A warp has a span of LINES lines in flight at once. They are APART lines apart, and so equally misaligned.
    static constexpr int LINES = 2, PIECES = 2, PIECE = operand_repack::PIECE, SPAN = PIECES * 32 * PIECE;
    static constexpr int APART = PIECE / UNIT_BYTES;
    static constexpr int K_TILES = SPAN / K_TILE_BYTES;  // of a slice
    static constexpr int WAVES = 31;                     // with slices of their own; the last of them has all the rest
    static_assert(SPAN % K_TILE_BYTES == 0, "a slice has whole K tiles");

    int m, n;
    RepackedLines a, b;
    int bytes;  // of a line
    unsigned* counters;

    // The host makes sure that a line has a span and 32 bytes at least.
    __device__ __forceinline__ int slices() const { return (opaque(bytes) + SPAN - 1) / SPAN; }
    __device__ __forceinline__ unsigned warps() const { return gridDim.x * WARPS; }

    // Hides a value's origin from the compiler, which then recomputes what depends on it instead of keeping it in
    // registers.
    template <typename VALUE>
    static __device__ __forceinline__ VALUE opaque(VALUE value) {
        asm volatile("" : "+r"(value));
        return value;
    }

    // The first lines of A and of B that no tile needs before wave `wave`.
    __device__ __forceinline__ void begin(int wave, int& of_a, int& of_b) const {
        of_a = m, of_b = n;
        if (wave < WAVES) SCHEDULER::wave_extents(m, n, wave, of_a, of_b);
        of_a = min(of_a, a.lines);
        of_b = min(of_b, b.lines);
    }

    // Whether wave `wave` has slices of its own.
    __device__ __forceinline__ bool has_slices(int wave) const {
        int from_a, from_b, to_a, to_b;
        begin(wave, from_a, from_b);
        begin(wave + 1, to_a, to_b);
        return from_a < to_a || from_b < to_b;
    }

    // The producer calls this once for each slice; afterwards TMA can read it.
    __device__ __forceinline__ void wait_for(int slice) const {
        wait_for_counter(counters + slice, warps());
        fence_proxy_async_global();
        leave_counter(counters + slice, warps(), gridDim.x);
    }

    __device__ __forceinline__ void arrive(int slice) const {
        fence_proxy_async_global();
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive_at_counter(counters + slice, warps(), gridDim.x);
    }

    // The role of repack warp `warp` of the whole launch.
    __device__ __forceinline__ void run(unsigned warp) const {
        int of_a, of_b;  // `begin` of the wave that has the lane's number
        begin(threadIdx.x % 32, of_a, of_b);
        int due = -1;  // a slice whose part this warp has written and not yet announced
        unsigned unit = warp;
#pragma unroll 1
        for (int wave = 0; wave < WAVES; ++wave) {
            if (lines_of(of_a, wave) == 0 && lines_of(of_b, wave) == 0) continue;
#pragma unroll 1
            for (int slice = 0; slice < slices(); ++slice) {
                unit = repack_slice(a, unit, of_a, wave, slice, due);
                unit = repack_slice(b, unit, of_b, wave, slice, due);
                if (due >= 0) arrive(due);
                due = wave * slices() + slice;
            }
        }
        if (due >= 0) arrive(due);
    }

    static __device__ __forceinline__ int lines_of(int begins, int wave) {
        return __shfl_sync(~0u, begins, wave + 1) - __shfl_sync(~0u, begins, wave);
    }

    // Repacks a warp's units of a slice, from unit `unit` on; returns how far the next one lies behind the slice's
    // last.
    __device__ __forceinline__ unsigned repack_slice(const RepackedLines& of, unsigned unit, int begins, int wave,
                                                     int slice, int& due) const {
        const unsigned from = __shfl_sync(~0u, begins, wave), to = __shfl_sync(~0u, begins, wave + 1);
        const unsigned units = (to - from + APART * LINES - 1) / (APART * LINES) * APART;
#pragma unroll 1
        for (; unit < units; unit += warps()) {
            const unsigned line = from + unit / APART * (APART * LINES) + unit % APART;
            if (line < to) repack(of, line, to, slice * SPAN, due);
        }
        return unit - units;
    }

    // Repacks the span from byte `offset` on of LINES lines from `line` on, of those before `to`.
    __device__ __forceinline__ void repack(const RepackedLines& of, unsigned line, unsigned to, unsigned offset,
                                           int& due) const {
        if (line + offset == 0 || line + (LINES - 1) * APART + 2 >= of.lines) {
            repack_at_the_ends(of, line, to, offset);
            return;
        }
        // The source has 16 bytes before such a span, and behind it: two more lines follow.
        const unsigned long long from = address(of, line, offset);
        const char* const begin = reinterpret_cast<const char*>(from / PIECE * PIECE);
        const unsigned lane = reread_laneid();
        const char* at = begin + lane * PIECE;
        uint4 pieces[LINES][PIECES];
#pragma unroll
        for (int i = 0; i < LINES; ++i) {
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece)
                pieces[i][piece] = operand_repack::load_piece<false>(at + piece * 32 * PIECE);
            at += static_cast<unsigned long long>(of.source_pitch) * APART;
        }
        // Lane i loads the piece behind those of line i.
        at = begin + static_cast<unsigned long long>(of.source_pitch) * (lane % LINES * APART) + SPAN;
        const uint4 behind = operand_repack::load_piece<false>(at);
        // While the loads are in flight there is time to wait for the fence of what was stored before.
        if (due >= 0) arrive(due);
        due = -1;
        store(of, opaque(line), to, opaque(offset), pieces, behind);
    }

    // The same where the source begins or ends, line by line: nothing outside is read.
    __device__ __forceinline__ void repack_at_the_ends(const RepackedLines& of, unsigned line, unsigned to,
                                                       unsigned offset) const {
        const char* const end = reinterpret_cast<const char*>(address(of, of.lines - 1, bytes));
#pragma unroll 1
        for (int i = 0; i < LINES && line < to; ++i, line += APART) {
            const char* const begin = reinterpret_cast<const char*>(address(of, line, offset) / PIECE * PIECE);
            uint4 pieces[1][PIECES];
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece)
                pieces[0][piece] = operand_repack::load_units<UNIT_BYTES>(
                    begin + (piece * 32 + reread_laneid()) * PIECE, of.source, end);
            store(of, line, to, offset, pieces, operand_repack::load_units<UNIT_BYTES>(begin + SPAN, of.source, end));
        }
    }

    static __device__ __forceinline__ unsigned long long address(const RepackedLines& of, unsigned line,
                                                                 unsigned byte) {
        const auto source = reinterpret_cast<unsigned long long>(of.source);
        return source + static_cast<unsigned long long>(line) * of.source_pitch + byte;
    }

    // Writes a span of COUNT lines, shifted to the 16-byte boundary.
    template <int COUNT>
    __device__ __forceinline__ void store(const RepackedLines& of, unsigned line, unsigned to, unsigned offset,
                                          const uint4 (&pieces)[COUNT][PIECES], const uint4& behind) const {
        const unsigned shift = static_cast<unsigned>(address(of, line, offset)) % PIECE;
        switch (shift / 4) {
            case 0:
                store_from<0>(of, line, to, offset, shift % 4 * 8, pieces, behind);
                break;
            case 1:
                store_from<1>(of, line, to, offset, shift % 4 * 8, pieces, behind);
                break;
            case 2:
                store_from<2>(of, line, to, offset, shift % 4 * 8, pieces, behind);
                break;
            default:
                store_from<3>(of, line, to, offset, shift % 4 * 8, pieces, behind);
                break;
        }
    }

    // The same for lines that begin `bits` bits behind word WORD of a piece.
    template <int WORD, int COUNT>
    __device__ __forceinline__ void store_from(const RepackedLines& of, unsigned line, unsigned to, unsigned offset,
                                               unsigned bits, const uint4 (&pieces)[COUNT][PIECES],
                                               const uint4& behind) const {
        const unsigned lane = reread_laneid(), left = bytes - offset;
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
                    // From the next lane; the last lane takes the first lane's next piece, or `behind`.
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

// This launch's repacking; empty without repack warps.
template <typename KERNEL, typename PARAMS>
__device__ __forceinline__ auto fused_repack(const PARAMS& params) {
    constexpr int UNIT_BYTES = sizeof(typename KERNEL::OPERATION::ELEMENT);
    const auto& gemm = params.gemm;
    const auto lines = [](const char* source, const void* target, long long pitch, long long target_pitch, int count) {
        return RepackedLines{source, static_cast<char*>(const_cast<void*>(target)), static_cast<unsigned>(pitch),
                             static_cast<unsigned>(target_pitch) * UNIT_BYTES, source ? count : 0};
    };
    return FusedRepack<typename KERNEL::SCHEDULER, KERNEL::TILE::BK * UNIT_BYTES, UNIT_BYTES, KERNEL::REPACK_WARPS>{
        gemm.m,
        gemm.n,
        lines(params.source_a, gemm.a, params.source_pitch_a, gemm.lda, gemm.m),
        lines(params.source_b, gemm.b, params.source_pitch_b, gemm.ldb, gemm.n),
        gemm.k * UNIT_BYTES,
        params.flags};
}

}  // namespace warptile
