// The K tile of an A whose lines are not aligned to 16 bytes, and its way from shared memory into registers.
#pragma once

#include "ptx/cp_async_bulk_tensor.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/warpgroup.cuh"

namespace warptile {

// Which row of a block of 64 stands in row `row` of the instruction. INTERLEAVED: row 8 c + q of the instruction is row
// 8 q + c of the block, so that the eight rows that a warp reads together are of one residue class.
template <bool INTERLEAVED>
__device__ __forceinline__ constexpr int block_row(int row) {
    return INTERLEAVED ? row % 8 * 8 + row / 8 : row;
}

// EXTENT rows of A, K_EXTENT elements of 16 or 32 bits along K. TMA needs strides that are multiples of 16 bytes. Rows
// that are eight apart have one, whatever the leading dimension. So each *residue class*, the rows with one remainder
// modulo 8, has a tensor map of its own, which begins at the last multiple of 16 bytes before its first row: all its
// rows are shifted by the same number of elements. A box has 16 more bytes of each row than K_EXTENT, or than half of
// it. It is not swizzled: eight rows of a class begin four banks apart.
template <typename ELEMENT, int EXTENT, int K_EXTENT>
struct WgmmaUnalignedA {
    static constexpr int CLASSES = 8, SIZE = sizeof(ELEMENT), PARTS = K_EXTENT + 16 / SIZE > 256 ? 2 : 1,
                         W = K_EXTENT / PARTS;
    static constexpr int ROW_BYTES = W * SIZE + 16, CLASS_BYTES = EXTENT / CLASSES * ROW_BYTES;
    static constexpr int PART_BYTES = EXTENT * ROW_BYTES, BYTES = PARTS * PART_BYTES;
    static constexpr int K_BLOCKS = K_EXTENT * SIZE / 32, PART_K_BLOCKS = K_BLOCKS / PARTS;
    static_assert((SIZE == 2 || SIZE == 4) && EXTENT % 64 == 0 && W * SIZE % 128 == 0,
                  "whole blocks of 64 rows of 16-bit or 32-bit elements");
    static_assert(W + 16 / SIZE <= 256, "a box has 256 elements at most");

    // Starts the loads of the rows from `row` on at `k_offset`, through the tensor map of each class.
    template <bool EVICT_FIRST>
    static __device__ __forceinline__ void load(unsigned to, const TensorMap (&maps)[CLASSES], int row, int k_offset,
                                                unsigned barrier) {
#pragma unroll
        for (int box = 0; box < CLASSES * PARTS; ++box) {
            const int residue = box / PARTS, part = box % PARTS;
            const unsigned at = to + part * PART_BYTES + residue * CLASS_BYTES;
            if constexpr (EVICT_FIRST) {
                cp_async_bulk_tensor_load_2d_evict_first(at, maps[residue], k_offset + part * W, row / CLASSES,
                                                         barrier);
            } else {
                cp_async_bulk_tensor_load_2d(at, maps[residue], k_offset + part * W, row / CLASSES, barrier);
            }
        }
    }

    // Loads this thread's fragments of A from a stage.
    struct FragmentLoader {
        // For the upper eight rows of the instruction's 16 and for the lower: where the first word lies in a stage, and
        // by how many bits (0 or 16) it begins too early.
        unsigned begin[2], bits[2];

        __device__ __forceinline__ FragmentLoader(const ELEMENT* a, long long lda) {
            const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int residue = 2 * warp + half;
                const unsigned bytes = reinterpret_cast<unsigned long long>(a + residue * lda) % 16;
                begin[half] = residue * CLASS_BYTES + lane / 4 * ROW_BYTES + bytes / 4 * 4 + lane % 4 * 4;
                bits[half] = bytes % 4 * 8;
            }
        }

        // The fragment of 64 rows from `row` on, of the stage at a shared address. PTX ISA, "Register Fragments for
        // wgmma.mma_async.m64nNk16", matrix A.
        __device__ __forceinline__ void load(unsigned (&fragment)[4], unsigned stage, int row, int k_block) const {
            unsigned next[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const unsigned offset =
                    k_block / PART_K_BLOCKS * PART_BYTES + k_block % PART_K_BLOCKS * 32 + i / 2 * 16;
                const unsigned at = stage + begin[i % 2] + row / CLASSES * ROW_BYTES + offset;
                fragment[i] = next[i] = ld_shared<4>(at).bits;
                if (SIZE < 4 && bits[i % 2]) next[i] = ld_shared<4>(at + 4).bits;
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) fragment[i] = __funnelshift_r(fragment[i], next[i], bits[i % 2]);
        }
    };
};

// The same for an A of 16-bit elements that is contiguous along M: its lines run along M, EXTENT elements of a line are
// loaded, and the residue classes are those of its K_EXTENT lines.
template <typename ELEMENT, int EXTENT, int K_EXTENT>
struct WgmmaUnalignedPanels {
    static constexpr int CLASSES = 8, SIZE = sizeof(ELEMENT);
    static constexpr int LINE_BYTES = EXTENT * SIZE + 16, CLASS_BYTES = K_EXTENT / CLASSES * LINE_BYTES;
    static constexpr int BYTES = K_EXTENT * LINE_BYTES, K_BLOCKS = K_EXTENT * SIZE / 32;
    static_assert(SIZE == 2 && EXTENT % 64 == 0 && K_EXTENT % 64 == 0, "whole blocks of 64 rows of 16-bit elements");
    static_assert(EXTENT + 16 / SIZE <= 256, "a box has 256 elements at most");

    // Starts the loads of the lines from `k_offset` on at `row`, through the tensor map of each class.
    template <bool EVICT_FIRST>
    static __device__ __forceinline__ void load(unsigned to, const TensorMap (&maps)[CLASSES], int row, int k_offset,
                                                unsigned barrier) {
#pragma unroll
        for (int residue = 0; residue < CLASSES; ++residue) {
            const unsigned at = to + residue * CLASS_BYTES;
            if constexpr (EVICT_FIRST) {
                cp_async_bulk_tensor_load_2d_evict_first(at, maps[residue], row, k_offset / CLASSES, barrier);
            } else {
                cp_async_bulk_tensor_load_2d(at, maps[residue], row, k_offset / CLASSES, barrier);
            }
        }
    }

    // Loads this thread's fragments of A from a stage.
    struct FragmentLoader {
        // For the even and the odd line of a pair along K: where the first word lies in a stage, and by how many bits
        // (0 or 16) it begins too early.
        unsigned begin[2], bits[2];

        __device__ __forceinline__ FragmentLoader(const ELEMENT* a, long long lda) {
            const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                const int residue = lane % 4 * 2 + odd;
                const unsigned bytes = reinterpret_cast<unsigned long long>(a + residue * lda) % 16;
                begin[odd] = residue * CLASS_BYTES + block_row<true>(16 * warp + lane / 4) * SIZE + bytes / 4 * 4;
                bits[odd] = bytes % 4 * 8;
            }
        }

        // As `WgmmaUnalignedA`'s. Two rows of a thread are neighbours in the block, so that a word has an element of
        // each; the words of two lines have the pairs along K that registers hold.
        __device__ __forceinline__ void load(unsigned (&fragment)[4], unsigned stage, int row, int k_block) const {
            unsigned words[2][2], next[2][2];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int half = i / 2, odd = i % 2;
                const unsigned at = stage + begin[odd] + row * SIZE + (2 * k_block + half) * LINE_BYTES;
                words[half][odd] = next[half][odd] = ld_shared<4>(at).bits;
                if (bits[odd]) next[half][odd] = ld_shared<4>(at + 4).bits;
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const unsigned even = __funnelshift_r(words[half][0], next[half][0], bits[0]);
                const unsigned odd = __funnelshift_r(words[half][1], next[half][1], bits[1]);
                fragment[2 * half] = __byte_perm(even, odd, 0x5410);
                fragment[2 * half + 1] = __byte_perm(even, odd, 0x7632);
            }
        }
    };
};

}  // namespace warptile
