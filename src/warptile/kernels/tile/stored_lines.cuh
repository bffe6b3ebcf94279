// A tile of D at any alignment, from shared memory in vectors of 16 bytes.
//
// A *line* is what is contiguous in D: a row of the tile, or all of its rows, where they follow each other without a
// gap. Each line lies in shared memory as far behind a multiple of 16 bytes as it does in D (its *shift*), so that the
// vectors of both are the same. What is left of a line before and behind its vectors is stored in halves of a vector,
// quarters and so on.
#pragma once

#include "ptx/shared_memory.cuh"
#include "tile/vector.cuh"

namespace warptile {

// Rows of D begin at multiples of ALIGNMENT bytes.
template <typename OUT, int BM, int BN, int ALIGNMENT>
struct StoredLines {
    static constexpr int SIZE = sizeof(OUT), WIDTH = 16 / SIZE, PITCH = BN * SIZE + 16, BYTES = BM * PITCH;
    static constexpr bool ALIGNED = ALIGNMENT >= 16;

    const unsigned memory;  // shared; a multiple of 16
    OUT* const origin;      // the tile's first element in D
    const long long ldd;
    const int rows, columns;  // of the tile that are in D
    const bool one_line;      // the rows follow each other

    __device__ __forceinline__ StoredLines(unsigned memory, OUT* origin, long long ldd, int rows, int columns)
        : memory(memory),
          origin(origin),
          ldd(ldd),
          rows(min(rows, BM)),
          columns(min(columns, BN)),
          one_line(columns <= BN && ldd == columns) {}

    // Where a row's first element is in shared memory.
    __device__ __forceinline__ unsigned row(int number) const {
        const unsigned apart = one_line ? 0 : static_cast<unsigned>(ldd);  // whatever overflows is a multiple of WIDTH
        const int pitch = one_line ? SIZE * columns : PITCH;
        const int shift = ALIGNED ? 0 : (elements_past_16_bytes(origin) + number * apart) % WIDTH;
        return memory + number * pitch + SIZE * shift;
    }

    // Stores what all THREADS threads have put there; `thread` is one of them.
    template <int THREADS>
    __device__ __forceinline__ void store(int thread) const {
        constexpr int VECTORS = BN / WIDTH;
        const int lines = one_line ? 1 : rows, length = one_line ? rows * columns : columns;
        const int all = one_line ? length / WIDTH : rows * VECTORS;
#pragma unroll 2
        for (int index = thread; index < all; index += THREADS) {
            const int number = one_line ? 0 : index / VECTORS;
            const Line line(*this, number);
            const int at = (one_line ? index : index % VECTORS) * WIDTH + line.head;
            if (at + WIDTH <= length) line.template move<16>(at);
        }
#pragma unroll 1
        for (int number = thread; number < lines; number += THREADS) Line(*this, number).store_ends(length);
    }

  private:
    struct Line {
        OUT* const to;
        const int head;       // elements before the first vector
        const unsigned from;  // shared

        __device__ __forceinline__ Line(const StoredLines& lines, int number)
            : to(lines.origin + number * lines.ldd),
              head(ALIGNED ? 0 : (WIDTH - elements_past_16_bytes(to)) % WIDTH),
              from(lines.memory + number * PITCH + (ALIGNED ? 0 : SIZE * elements_past_16_bytes(to))) {}

        template <int BYTES>
        __device__ __forceinline__ void move(int at) const {
            *reinterpret_cast<Packet<BYTES>*>(to + at) = ld_shared<BYTES>(from + SIZE * at);
        }

        // Stores the elements before the first vector and behind the last one.
        __device__ __forceinline__ void store_ends(int length) const {
            if (head > length) {
#pragma unroll 1
                for (int at = 0; at < length; ++at) move<SIZE>(at);
            } else {
                store_parts<SIZE>(length);
            }
        }

        // Those in parts of BYTES bytes, then of twice as many and so on: before the first vector the longer a part
        // the later, behind the last one the longer the earlier. All are loaded before the first is stored.
        template <int BYTES>
        __device__ __forceinline__ void store_parts(int length) const {
            if constexpr (BYTES < 16) {
                constexpr int N = BYTES / SIZE;
                const int behind = (length - head) % WIDTH, before = head % N, after = length - behind % (2 * N);
                const bool is_before = BYTES >= ALIGNMENT && head & N, is_behind = behind & N;
                Packet<BYTES> first, last;
                if (is_before) first = ld_shared<BYTES>(from + SIZE * before);
                if (is_behind) last = ld_shared<BYTES>(from + SIZE * after);
                store_parts<2 * BYTES>(length);
                if (is_before) *reinterpret_cast<Packet<BYTES>*>(to + before) = first;
                if (is_behind) *reinterpret_cast<Packet<BYTES>*>(to + after) = last;
            }
        }
    };
};

}  // namespace warptile
