// The repacking pass: rewrites an operand before the GEMM, its lines onto 16-byte boundaries, or transposed.
//
// A line is what is contiguous: a row of a row-major matrix, a column of a column-major one. Threads move pieces of 16
// bytes, counted from the start of a line. Source lines may start at any multiple of a unit: a piece is cut out of two
// aligned loads, so that global memory is read in full sectors whatever the stride. These may reach into what lies
// between two lines, never before the first unit or behind the last one of the source.
// Target lines start at multiples of 16 bytes. Behind a line nothing is written from the next multiple of 16 bytes
// on; up to there the contents are unspecified.
//
// Not in namespace warptile: profiling commands select the GEMM kernels by that name.
#pragma once

#include "ptx/griddepcontrol.cuh"
#include "ptx/shared_memory.cuh"

namespace operand_repack {

constexpr int PIECE = 16;

template <int BYTES>
struct Unit;
template <>
struct Unit<1> {
    using type = unsigned char;
};
template <>
struct Unit<2> {
    using type = unsigned short;
};
template <>
struct Unit<4> {
    using type = unsigned;
};

// Bytes `shift` to `shift` + 15 of the 32 in low and high.
__device__ __forceinline__ uint4 cut(uint4 low, uint4 high, unsigned shift) {
    unsigned a = low.x, b = low.y, c = low.z, d = low.w, e = high.x, f = high.y, g = high.z;
    if (shift & 8) a = c, b = d, c = e, d = f, e = g, f = high.w;
    if (shift & 4) a = b, b = c, c = d, d = e, e = f;
    const unsigned bits = shift % 4 * 8;
    return make_uint4(__funnelshift_r(a, b, bits), __funnelshift_r(b, c, bits), __funnelshift_r(c, d, bits),
                      __funnelshift_r(d, e, bits));
}

// Behind `griddepcontrol_wait`, which orders no load that the compiler takes for one of constants. ONCE: what is read
// leaves L2 first, so that what is written stays there for the GEMM.
template <bool ONCE>
__device__ __forceinline__ uint4 load_piece(const char* from) {
    uint4 piece;
    if constexpr (ONCE) {
        unsigned long long policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(piece.x), "=r"(piece.y), "=r"(piece.z), "=r"(piece.w)
                     : "l"(from), "l"(policy));
    } else {
        asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(piece.x), "=r"(piece.y), "=r"(piece.z), "=r"(piece.w)
                     : "l"(from));
    }
    return piece;
}

// The 16 bytes at `from`; those outside [begin, end), whole units, are not read and zero.
template <int UNIT_BYTES>
__device__ __forceinline__ uint4 load_units(const char* from, const char* begin, const char* end) {
    using UNIT = typename Unit<UNIT_BYTES>::type;
    unsigned words[4] = {};
#pragma unroll
    for (int byte = 0; byte < PIECE; byte += UNIT_BYTES)
        if (end - from > byte && from + byte >= begin)
            words[byte / 4] |= static_cast<unsigned>(*reinterpret_cast<const UNIT*>(from + byte)) << byte % 4 * 8;
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// Reads the pieces at COUNT ascending addresses, of which none may be aligned; all loads first, so that they are in
// flight together. ALIGNED: all are multiples of 16. Bytes outside [begin, end) are left zero.
template <int UNIT_BYTES, bool ALIGNED, bool ONCE, int COUNT>
__device__ __forceinline__ void load_pieces(const char* const (&from)[COUNT], const char* begin, const char* end,
                                            uint4 (&pieces)[COUNT]) {
    constexpr unsigned READ = ALIGNED ? PIECE : 2 * PIECE;
    unsigned shifts[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        shifts[i] = ALIGNED ? 0 : static_cast<unsigned>(reinterpret_cast<unsigned long long>(from[i])) % PIECE;
    if (from[0] - begin >= shifts[0] && end - from[COUNT - 1] + shifts[COUNT - 1] >= READ) {
        uint4 behind[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            pieces[i] = load_piece<ONCE>(from[i] - shifts[i]);
            if constexpr (!ALIGNED) behind[i] = load_piece<ONCE>(from[i] - shifts[i] + PIECE);
        }
        if constexpr (!ALIGNED) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) pieces[i] = cut(pieces[i], behind[i], shifts[i]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) pieces[i] = load_units<UNIT_BYTES>(from[i], from[i], end);
}

// One operand, as `Repack` of warptile/rungs/repack.py describes it; lengths and strides in bytes. A CTA moves a tile
// of one matrix, of which each has `tiles`.
constexpr int THREADS = 256;
struct Operand {
    const char* source;
    char* target;
    long long lines, bytes, source_stride, target_stride, source_matrix, target_matrix;
    int tiles;
    int along;  // threads of a block along a line, a power of two

    __device__ __forceinline__ const char* end() const { return source + (lines - 1) * source_stride + bytes; }
};

// Lines stay lines; a thread moves one piece of each of LINES lines. With two lines, and many resident CTAs on a
// multiprocessor, there are enough loads in flight; more lines, or persistent CTAs, leave fewer.
template <int UNIT_BYTES, bool ALIGNED, bool ONCE>
struct Straight {
    static constexpr int LINES = 2;
    static __device__ __forceinline__ void move(const Operand& operand, int tile_along, int tile_across) {
        const int thread = threadIdx.x % operand.along, step = THREADS / operand.along;
        const long long offset = (static_cast<long long>(tile_along) * operand.along + thread) * PIECE;
        const long long line = static_cast<long long>(tile_across) * step * LINES + threadIdx.x / operand.along;
        const char* from[LINES];
        uint4 pieces[LINES];
#pragma unroll
        for (int i = 0; i < LINES; ++i)
            from[i] = operand.source + min(line + i * step, operand.lines - 1) * operand.source_stride + offset;
        warptile::griddepcontrol_wait();
        if (offset >= operand.bytes || line >= operand.lines) return;
        load_pieces<UNIT_BYTES, ALIGNED, ONCE>(from, operand.source, operand.end(), pieces);
        warptile::griddepcontrol_launch_dependents();
#pragma unroll
        for (int i = 0; i < LINES; ++i) {
            const long long to = line + i * step;
            if (to < operand.lines)
                *reinterpret_cast<uint4*>(operand.target + to * operand.target_stride + offset) = pieces[i];
        }
    }
};

// Transposes 4 x 4 bytes: word i of the result has byte i of every word.
__device__ __forceinline__ void transpose_bytes(const unsigned (&in)[4], unsigned (&out)[4]) {
    const unsigned even01 = __byte_perm(in[0], in[1], 0x5140), odd01 = __byte_perm(in[0], in[1], 0x7362);
    const unsigned even23 = __byte_perm(in[2], in[3], 0x5140), odd23 = __byte_perm(in[2], in[3], 0x7362);
    out[0] = __byte_perm(even01, even23, 0x5410);
    out[1] = __byte_perm(even01, even23, 0x7632);
    out[2] = __byte_perm(odd01, odd23, 0x5410);
    out[3] = __byte_perm(odd01, odd23, 0x7632);
}

// Piece `which` of the target's, of 16 bytes of one word's column: unit `which` of every word of the column.
template <int UNIT_BYTES>
__device__ __forceinline__ void transpose(const unsigned (&column)[16 / UNIT_BYTES], uint4 (&pieces)[4 / UNIT_BYTES]) {
    if constexpr (UNIT_BYTES == 4) {
        pieces[0] = make_uint4(column[0], column[1], column[2], column[3]);
    } else if constexpr (UNIT_BYTES == 2) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const unsigned selector = half ? 0x7632 : 0x5410;
            pieces[half] =
                make_uint4(__byte_perm(column[0], column[1], selector), __byte_perm(column[2], column[3], selector),
                           __byte_perm(column[4], column[5], selector), __byte_perm(column[6], column[7], selector));
        }
    } else {
        unsigned out[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const unsigned in[4] = {column[4 * i], column[4 * i + 1], column[4 * i + 2], column[4 * i + 3]};
            transpose_bytes(in, out[i]);
        }
#pragma unroll
        for (int unit = 0; unit < 4; ++unit)
            pieces[unit] = make_uint4(out[0][unit], out[1][unit], out[2][unit], out[3][unit]);
    }
}

// Transposes: each unit of a line goes to a line of its own. A tile, 128 lines of 128 bytes, is in shared memory as it
// is in the source: a row holds the aligned pieces that have its part of a line, each read once. GROUP units that
// follow each other in the target, a piece of it, are of as many lines; rows that are GROUP apart are shifted alike. A
// warp reads four neighbouring words in each of eight groups, which begin an odd multiple of four banks apart: no two
// on one bank.
template <int UNIT_BYTES, bool ALIGNED, bool ONCE>
struct Transposed {
    static constexpr unsigned ROWS = 128, PIECES = 8, ROW_PIECES = ALIGNED ? PIECES : PIECES + 1;
    static constexpr unsigned COUNT = (ROWS * ROW_PIECES + THREADS - 1) / THREADS;
    static constexpr unsigned GROUP = PIECE / UNIT_BYTES, GROUPS = ROWS / GROUP, UNITS = 4 / UNIT_BYTES;
    static constexpr unsigned ROW_BYTES = ROW_PIECES * PIECE, GROUP_BYTES = GROUP * ROW_BYTES + PIECE;

    static __device__ __forceinline__ unsigned place(unsigned row) {
        return row / GROUP * GROUP_BYTES + row % GROUP * ROW_BYTES;
    }

    static __device__ __forceinline__ void load(unsigned tile, const Operand& operand, long long first_byte,
                                                long long first_line) {
        const char* const end = operand.end();
        uint4 pieces[COUNT];
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i) {
            const unsigned item = i * THREADS + threadIdx.x, row = item / ROW_PIECES, piece = item % ROW_PIECES;
            const long long line = first_line + row;
            const char* from = operand.source + line * operand.source_stride + first_byte;
            const unsigned shift =
                ALIGNED ? 0 : static_cast<unsigned>(reinterpret_cast<unsigned long long>(from)) % PIECE;
            from += static_cast<int>(piece * PIECE - shift);
            pieces[i] = uint4{};
            if (row < ROWS && line < operand.lines && end > from) {
                if (end - from >= PIECE && from >= operand.source) {
                    pieces[i] = load_piece<ONCE>(from);
                } else {
                    pieces[i] = load_units<UNIT_BYTES>(from, ALIGNED ? from : operand.source, end);
                }
            }
        }
#pragma unroll
        for (unsigned i = 0; i < COUNT; ++i) {
            const unsigned item = i * THREADS + threadIdx.x, row = item / ROW_PIECES, piece = item % ROW_PIECES;
            if (row < ROWS) warptile::st_shared(tile + place(row) + piece * PIECE, warptile::Packet<PIECE>{pieces[i]});
        }
    }

    static __device__ __forceinline__ void store(unsigned tile, const Operand& operand, long long first_byte,
                                                 long long first_line) {
        const unsigned begin = static_cast<unsigned>(reinterpret_cast<unsigned long long>(operand.source));
        const unsigned stride = static_cast<unsigned>(operand.source_stride);
#pragma unroll
        for (unsigned i = 0; i < GROUPS * PIECES * 4 / THREADS; ++i) {
            // From the lowest: word of the piece (2 bits), piece and group, eight of each a warp's neighbours.
            const unsigned item = i * THREADS + threadIdx.x;
            const unsigned group = item % 8 + item / 256 * 8, word = item / 8 % 4, piece = item / 32 % 8;
            const long long line = first_line + group * GROUP;
            const unsigned from = tile + group * GROUP_BYTES + piece * PIECE + word * 4;
            unsigned column[GROUP];
#pragma unroll
            for (unsigned row = 0; row < GROUP; ++row) {
                const unsigned shift = ALIGNED ? 0 : (begin + row * stride) % PIECE;
                const unsigned at = from + row * ROW_BYTES + shift / 4 * 4;
                column[row] = warptile::ld_shared<4>(at).bits;
                if (!ALIGNED && UNIT_BYTES < 4)
                    column[row] = __funnelshift_r(column[row], warptile::ld_shared<4>(at + 4).bits, shift % 4 * 8);
            }
            uint4 pieces[UNITS];
            transpose<UNIT_BYTES>(column, pieces);
#pragma unroll
            for (unsigned unit = 0; unit < UNITS; ++unit) {
                const long long byte = first_byte + piece * PIECE + word * 4 + unit * UNIT_BYTES;
                if (line < operand.lines && byte < operand.bytes)
                    *reinterpret_cast<uint4*>(operand.target + byte / UNIT_BYTES * operand.target_stride +
                                              line * UNIT_BYTES) = pieces[unit];
            }
        }
    }

    static __device__ __forceinline__ void move(const Operand& operand, int tile_along, int tile_across) {
        __shared__ uint4 memory[GROUPS * GROUP_BYTES / PIECE];
        const unsigned tile = warptile::shared_address(memory);
        const long long first_byte = static_cast<long long>(tile_along) * PIECES * PIECE;
        const long long first_line = static_cast<long long>(tile_across) * ROWS;
        warptile::griddepcontrol_wait();
        load(tile, operand, first_byte, first_line);
        __syncthreads();
        warptile::griddepcontrol_launch_dependents();
        store(tile, operand, first_byte, first_line);
    }
};

template <typename WAY>
__device__ __forceinline__ void repack_tile(Operand operand, int block) {
    const int matrix = block / operand.tiles, tile = block % operand.tiles;
    operand.source += matrix * operand.source_matrix;
    operand.target += matrix * operand.target_matrix;
    const int pieces = operand.along * PIECE, tiles_along = static_cast<int>((operand.bytes + pieces - 1) / pieces);
    WAY::move(operand, tile % tiles_along, tile / tiles_along);
}

template <typename WAY>
__global__ void __launch_bounds__(THREADS, 4)
    repack_one(const char* source, char* target, long long lines, long long bytes, long long source_stride,
               long long target_stride, long long source_matrix, long long target_matrix, int tiles, int along) {
    repack_tile<WAY>(
        {source, target, lines, bytes, source_stride, target_stride, source_matrix, target_matrix, tiles, along},
        blockIdx.x);
}

// Two operands in one launch; the first `blocks` blocks move the first one.
template <typename FIRST, typename SECOND>
__global__ void __launch_bounds__(THREADS, 4)
    repack_two(const char* source, char* target, long long lines, long long bytes, long long source_stride,
               long long target_stride, long long source_matrix, long long target_matrix, int tiles, int along,
               const char* source2, char* target2, long long lines2, long long bytes2, long long source_stride2,
               long long target_stride2, long long source_matrix2, long long target_matrix2, int tiles2, int along2,
               int blocks) {
    const int block = blockIdx.x;
    if (block < blocks) {
        repack_tile<FIRST>(
            {source, target, lines, bytes, source_stride, target_stride, source_matrix, target_matrix, tiles, along},
            block);
    } else {
        repack_tile<SECOND>({source2, target2, lines2, bytes2, source_stride2, target_stride2, source_matrix2,
                             target_matrix2, tiles2, along2},
                            block - blocks);
    }
}

}  // namespace operand_repack
