// Operands of 16-bit elements at any alignment: how tiles of them are copied to shared memory as they lie, and how a
// warp reads its fragments from there.
//
// A *line* is what is contiguous in the matrix: with K_MAJOR the K of a row of A (column of B), else the rows (columns)
// of one k. cp.async moves 16 bytes from multiples of 16. Of a line that begins elsewhere, copies begin at the multiple
// before, and what the line's first element is past that multiple (its *shift*) it also is in shared memory: the lanes
// that read fragments add it. Lines that begin at multiples of 8 bytes are copied 8 at a time, without a shift.
#pragma once

#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "tile/vector.cuh"

namespace warptile {

// A tile of EXTENT rows of A (columns of B) and BK of K in shared memory, for lines that begin at multiples of
// ALIGNMENT bytes.
template <typename ELEMENT_, int EXTENT, int BK, bool K_MAJOR_, int ALIGNMENT>
struct LineTile {
    using ELEMENT = ELEMENT_;
    static_assert(sizeof(ELEMENT) == 2, "elements have 16 bits");
    static constexpr bool K_MAJOR = K_MAJOR_, SHIFTED = ALIGNMENT < 8;
    static constexpr int COPY_BYTES = ALIGNMENT == 8 ? 8 : 16, COPIED = COPY_BYTES / 2;  // elements
    static constexpr int ELEMENTS = K_MAJOR ? BK : EXTENT, LINES = K_MAJOR ? EXTENT : BK, COPIES = ELEMENTS / COPIED;
    static_assert(ELEMENTS % 16 == 0, "lines are an odd number of 16 bytes apart");

    // Lines are an odd number of 16 bytes apart: eight of them begin in different banks.
    static constexpr int PITCH = 2 * ELEMENTS + 16, BYTES = LINES * PITCH;

    // A tile in memory, whose first element is at `origin`. From there `lines` lines of the matrix are left, and
    // `elements` elements of each; zeros are stored for the rest. Nothing is read before `memory`, where the first
    // matrix of the operand begins.
    struct Source {
        const ELEMENT *origin, *memory;
        long long ld;
        int lines, elements;
    };

    // Copies a tile to `to`. THREADS threads copy, `thread` is one of them.
    template <int THREADS>
    static __device__ __forceinline__ void stage(unsigned to, const Source& from, int thread) {
        constexpr int AROUND = SHIFTED ? COPIED : 0;  // elements that are copied beside a line's
        if (from.lines >= LINES && from.elements >= ELEMENTS + AROUND && from.origin - from.memory >= AROUND) {
            of_each_copy<THREADS, 8>(thread, [&](int line, int number) {
                cp_async<COPY_BYTES>(to + line * PITCH + number * COPY_BYTES, copied(from, line, number).source);
            });
        } else {
            of_each_copy<THREADS, 2>(thread, [&](int line, int number) {
                start(to + line * PITCH + number * COPY_BYTES, copied(from, line, number), from.memory);
            });
        }
    }

    // The same with shorter code. PREPARED: what is copied is known already.
    template <int THREADS, bool PREPARED>
    static __device__ __forceinline__ void start(unsigned to, const Source& from, int thread) {
        of_each_copy<THREADS, 1>(thread, [&](int line, int number) {
            const unsigned target = to + line * PITCH + number * COPY_BYTES;
            if constexpr (PREPARED && COPY_BYTES == sizeof(Copy)) {
                const auto kept = ld_shared<16>(target);
                start(target, *reinterpret_cast<const Copy*>(&kept), from.memory);
            } else {
                start(target, copied(from, line, number), from.memory);
            }
        });
    }

    // Finds what is to be copied, reading nothing yet, and keeps it where the data will be: what is computed before
    // `griddepcontrol_wait` and not stored, the compiler moves behind it.
    template <int THREADS>
    static __device__ __forceinline__ void prepare(unsigned to, const Source& from, int thread) {
        if constexpr (COPY_BYTES == sizeof(Copy))
            of_each_copy<THREADS, 1>(thread, [&](int line, int number) {
                const Copy copy = copied(from, line, number);
                st_shared(to + line * PITCH + number * COPY_BYTES, *reinterpret_cast<const Packet<16>*>(&copy));
            });
    }

  private:
    struct __align__(16) Copy {
        const ELEMENT* source;
        int bytes;  // the rest of what is stored are zeros
    };

    // Calls `does` with the line of each copy of a thread and its number in the line, up to UNROLLED after each other.
    template <int THREADS, int UNROLLED, typename DOES>
    static __device__ __forceinline__ void of_each_copy(int thread, const DOES& does) {
        constexpr int ALL = LINES * COPIES;
#pragma unroll UNROLLED
        for (int i = 0; i < ALL; i += THREADS) {
            const int index = i + thread;
            if (ALL % THREADS == 0 || index < ALL) does(index / COPIES, index % COPIES);
        }
        if constexpr (SHIFTED) {
#pragma unroll UNROLLED
            for (int first = 0; first < LINES; first += THREADS)
                if (LINES % THREADS == 0 || first + thread < LINES) does(first + thread, COPIES);
        }
    }

    static __device__ __forceinline__ Copy copied(const Source& from, int line, int number) {
        const ELEMENT* const first = from.origin + line * from.ld;
        const int past = SHIFTED ? elements_past_16_bytes(first) : 0, at = number * COPIED - past;
        return {first + at, line < from.lines ? 2 * min(max(from.elements - at, 0), COPIED) : 0};
    }

    static __device__ __forceinline__ void start(unsigned target, const Copy& copy, const ELEMENT* memory) {
        if (!SHIFTED || copy.source >= memory) {
            cp_async_zero_fill<COPY_BYTES>(target, copy.source, copy.bytes);
            return;
        }
#pragma unroll 1
        for (int i = 0; i < COPIED; ++i) {  // the first line: what lies in the same 16 bytes before it is not read
            Packet<2> element{};
            if (copy.source + i >= memory && 2 * i < copy.bytes)
                element = *reinterpret_cast<const Packet<2>*>(copy.source + i);
            st_shared(target + 2 * i, element);
        }
    }
};

// Reads one operand's fragments of a warp whose first row of A (column of B) in the tile is `start`. A 16-tile is a
// fragment of A or two of B, as in `FragmentLoader`, whose order of words it has.
template <typename TILE, bool FOR_A, int ALIGNMENT>
struct LineFragments {
    using ELEMENT = typename TILE::ELEMENT;
    static constexpr int PITCH = TILE::PITCH;
    unsigned from;   // what this lane reads first, in the tile
    unsigned other;  // not K-major: its second line
    unsigned odd;    // K-major: 16 where a pair of elements begins in the middle of a word, else 0

    // `origin` is the tile's first element in the matrix. Lines that are eight apart, and the same line in any tile
    // along K, have the same shift.
    __device__ __forceinline__ LineFragments(const ELEMENT* origin, long long ld, int start) {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, matrix = lane / 8, row = lane % 8;
        const int half = FOR_A ? matrix % 2 : matrix / 2, part = FOR_A ? matrix / 2 : matrix % 2;
        other = odd = 0;
        if constexpr (!TILE::SHIFTED && TILE::K_MAJOR) {
            from = (start + 8 * half + row) * PITCH + 16 * part;
        } else if constexpr (!TILE::SHIFTED) {
            from = (8 * part + row) * PITCH + 2 * start + 16 * half;
        } else if constexpr (TILE::K_MAJOR) {
            const int shift = elements_past_16_bytes(origin + (start + g) * ld);
            from = (start + g) * PITCH + 4 * t + 4 * (shift / 2);
            odd = shift % 2 * 16;
        } else {
            const int column = start + g;
            from = 2 * t * PITCH + 2 * (column + elements_past_16_bytes(origin + 2 * t * ld));
            other = (2 * t + 1) * PITCH + 2 * (column + elements_past_16_bytes(origin + (2 * t + 1) * ld));
        }
    }

    // Loads 16-tile `tile16` of k-block `k_block` of the tile at `at`.
    __device__ __forceinline__ void load(unsigned (&words)[4], unsigned at, int tile16, int k_block) const {
        const unsigned step = TILE::K_MAJOR ? tile16 * 16 * PITCH + 32 * k_block : k_block * 16 * PITCH + 32 * tile16;
        if constexpr (!TILE::SHIFTED) {
            ldmatrix_x4<!TILE::K_MAJOR>(words, at + from + step);
        } else {
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int part = 0; part < 2; ++part) {
                    const int along = TILE::K_MAJOR ? half * 8 * PITCH + 16 * part : part * 8 * PITCH + 16 * half;
                    words[FOR_A ? half + 2 * part : part + 2 * half] = pair(at + step + along);
                }
        }
    }

  private:
    // Two elements along K.
    __device__ __forceinline__ unsigned pair(unsigned at) const {
        if constexpr (!TILE::K_MAJOR) {
            return __byte_perm(ld_shared<2>(at + from).bits, ld_shared<2>(at + other).bits, 0x5410);
        } else if constexpr (ALIGNMENT == 4) {
            return ld_shared<4>(at + from).bits;
        } else {
            return __funnelshift_r(ld_shared<4>(at + from).bits, ld_shared<4>(at + from + 4).bits, odd);
        }
    }
};

}  // namespace warptile
