// A's part of a stage where its rows begin at any element, and its way into registers.
#pragma once

#include "ptx/shared.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/warpgroup.cuh"

namespace warptile {

// Which row of a block of 64 an instruction's row is: with SPREAD row 8 c + q is row 8 q + c.
template <bool SPREAD>
__device__ __forceinline__ constexpr int spread(int row) {
    return SPREAD ? row % 8 * 8 + row / 8 : row;
}

// EXTENT rows of A, DEPTH elements of 16 bits deep, contiguous along K. TMA takes pitches that are multiples of 16 bytes:
// those of rows eight apart always are. So each *class*, of rows with the same remainder by eight, has a tensor map of its
// own, which begins at the multiple of 16 bytes before its first row: all its rows are shifted by as many elements. A box
// has 16 bytes more of each row than its DEPTH, or half of it; it is not swizzled: eight rows of a class lie on banks four
// words apart each.
template <typename ELEMENT, int EXTENT, int DEPTH>
struct WgmmaRows {
    static constexpr int CLASSES = 8, SIZE = sizeof(ELEMENT), PARTS = DEPTH + 16 / SIZE > 256 ? 2 : 1, W = DEPTH / PARTS;
    static constexpr int ROW_BYTES = W * SIZE + 16, CLASS_BYTES = EXTENT / CLASSES * ROW_BYTES;
    static constexpr int PART_BYTES = EXTENT * ROW_BYTES, BYTES = PARTS * PART_BYTES;
    static constexpr int SLABS = DEPTH * SIZE / 32, PART_SLABS = SLABS / PARTS;
    static_assert(SIZE == 2 && EXTENT % 64 == 0 && W % 64 == 0, "whole blocks of 64 rows of 16-bit elements");
    static_assert(W + 16 / SIZE <= 256, "a box has 256 elements at most");

    // Starts the copies of the rows from `row` on, at `depth`, through the map of each class.
    template <bool ONCE>
    static __device__ __forceinline__ void load(unsigned to, const TensorMap* const (&maps)[CLASSES], int row, int depth,
                                                unsigned barrier) {
#pragma unroll
        for (int box = 0; box < CLASSES * PARTS; ++box) {
            const int number = box / PARTS, part = box % PARTS;
            const unsigned place = to + part * PART_BYTES + number * CLASS_BYTES;
            if constexpr (ONCE) {
                load_box_once(place, *maps[number], depth + part * W, row / CLASSES, barrier);
            } else {
                load_box(place, *maps[number], depth + part * W, row / CLASSES, barrier);
            }
        }
    }

    // Where this thread's fragments begin in a stage. The eight rows that a warp reads at a time are of one class.
    struct Reader {
        unsigned begin[2], bits[2];  // of the upper eight rows of an instruction's 16, and of the lower; 16 bits too early?

        __device__ __forceinline__ Reader(const ELEMENT* a, long long lda) {
            const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int number = 2 * warp + half;
                const unsigned bytes = reinterpret_cast<unsigned long long>(a + number * lda) % 16;
                begin[half] = number * CLASS_BYTES + lane / 4 * ROW_BYTES + bytes / 4 * 4 + lane % 4 * 4;
                bits[half] = bytes % 4 * 8;
            }
        }

        // The fragment of the 64 rows from `row` on of the stage at a shared address: PTX ISA, "Register Fragments for
        // wgmma.mma_async", matrix A.
        __device__ __forceinline__ void load(unsigned (&fragment)[4], unsigned stage, int row, int slab) const {
            unsigned next[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const unsigned place = slab / PART_SLABS * PART_BYTES + slab % PART_SLABS * 32 + i / 2 * 16;
                const unsigned at = stage + begin[i % 2] + row / CLASSES * ROW_BYTES + place;
                fragment[i] = next[i] = load_packet<4>(at).bits;
                if (bits[i % 2]) next[i] = load_packet<4>(at + 4).bits;
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) fragment[i] = __funnelshift_r(fragment[i], next[i], bits[i % 2]);
        }
    };
};

}  // namespace warptile
