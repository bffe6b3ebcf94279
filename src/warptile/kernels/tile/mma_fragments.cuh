// From shared memory into the registers that mma.sync wants, for every type and both layouts.
//
// Warps load *16-tiles*: 16 rows of A (one fragment) or 16 columns of B (two fragments), one k-block deep. Of a 16-tile
// a lane holds rows g and g + 8, g = lane / 4, and offsets along K that depend on t = lane % 4. Which row of the matrix
// is which row of a 16-tile is free, as long as the epilogue knows (`Placement`); so is the order of K, as long as A
// and B have the same. That freedom gives every layout 16-byte loads without bank conflicts.
#pragma once

#include "ptx/ldmatrix.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/block_tile.cuh"
#include "tile/mma_operation.cuh"
#include "tile/panels.cuh"

namespace warptile {

// Exchanges 16-byte chunks so that lanes 8 q .. 8 q + 7, which load together, access chunks (rows) q and q + 4.
__device__ __forceinline__ constexpr int interleaved(int g) { return g / 2 + g % 2 * 4; }

// Which of the warp tile's rows (columns) is row `index` of half `half` of 16-tile `tile16`.
template <int UNIT_BYTES, bool K_MAJOR>
struct Placement {
    static constexpr int TILES16 = UNIT_BYTES == 4 && !K_MAJOR ? 2 : 1;  // 16-tiles that are loaded together
    // Whether columns 2 t and 2 t + 1 of a fragment are neighbours in the matrix.
    static constexpr bool NEIGHBOURS = UNIT_BYTES == 2 || (UNIT_BYTES < 8 && K_MAJOR);

    static __device__ __forceinline__ constexpr int at(int tile16, int half, int index) {
        if (UNIT_BYTES == 8 && K_MAJOR) return 16 * tile16 + 8 * half + interleaved(index);
        if (K_MAJOR || UNIT_BYTES == 2) return 16 * tile16 + 8 * half + index;
        if (UNIT_BYTES == 4) return tile16 / 2 * 32 + 4 * interleaved(index) + tile16 % 2 * 2 + half;
        return 16 * tile16 + 2 * index + half;
    }
};

// TF32 keeps 10 of float's 23 fraction bits: round to nearest here, the tensor core would only truncate them.
__device__ __forceinline__ unsigned rounded_to_tf32(unsigned word) {
    unsigned result;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(result) : "f"(__uint_as_float(word)));
    return result;
}

// Loads one operand's 16-tiles of a warp. FOR_A says how the words of a 16-tile are ordered: A's are half + 2 * part,
// where part counts along K; B's are part + PARTS * half, two fragments after each other. ROUND_TF32: words in shared
// memory are float's, to be rounded. (TMA rounds those that it copies.)
template <typename PANELS, bool FOR_A, int K_BLOCK_BYTES = 32, bool ROUND_TF32 = true>
struct FragmentLoader {
    static constexpr int SIZE = PANELS::UNIT_BYTES;
    static constexpr bool K_MAJOR = PANELS::K_MAJOR, DOUBLE = SIZE == 8;
    using WORD = typename Choice<DOUBLE, double, unsigned>::type;
    using PLACEMENT = Placement<SIZE, K_MAJOR>;
    static constexpr int PARTS = K_BLOCK_BYTES / (DOUBLE ? 32 : 16), WORDS = 2 * PARTS,
                         K_BLOCK_LINES = K_BLOCK_BYTES / SIZE;

    unsigned from;       // what this lane reads first, in the panels
    unsigned selectors;  // 8-bit, not K-major: how bytes are picked for the first half; for the second half plus 0x1111

    // `start` is the warp's first row (column) in the block tile.
    __device__ __forceinline__ explicit FragmentLoader(int start) : selectors(0) {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, matrix = lane / 8, row = lane % 8;
        const int half = FOR_A ? matrix % 2 : matrix / 2, part = FOR_A ? matrix / 2 : matrix % 2;
        const int byte = start * SIZE;
        if constexpr (DOUBLE) {
            from = K_MAJOR ? PANELS::offset(start + interleaved(g), 16 * t) : PANELS::offset(2 * t, byte + 16 * g);
        } else if constexpr (K_MAJOR) {
            from = PANELS::offset(start + 8 * half + row, 16 * part);
        } else if constexpr (SIZE == 2) {
            from = PANELS::offset(8 * part + row, byte + 16 * half);
        } else if constexpr (SIZE == 1) {
            // Lane t of a row is to get K 4 t .. 4 t + 3. Matrices come in pairs; the first of a pair holds the lower
            // two of those for t < 2 and the upper two for t > 1, so that its eight lines differ modulo 8.
            const int wanted = row / 2, upper = matrix % 2 ^ wanted / 2;
            from = PANELS::offset(matrix / 2 * 16 + 4 * wanted + 2 * upper + row % 2, byte);
            selectors = t < 2 ? 0x6420 : 0x2064;
        } else {
            from = PANELS::offset(t, byte + 16 * interleaved(g));
        }
    }

    // Loads PLACEMENT::TILES16 16-tiles from number `tile16` on into `words`, at k-block `k_block` of the stage at
    // `stage`.
    __device__ __forceinline__ void load(WORD* words, unsigned stage, int tile16, int k_block) const {
        constexpr int ROW_BYTES = PANELS::ROW_BYTES, PANEL_BYTES = PANELS::PANEL_BYTES;
        if constexpr (K_MAJOR) {
            const int byte = k_block * K_BLOCK_BYTES;
            const unsigned address =
                stage + (from ^ byte % ROW_BYTES) + byte / ROW_BYTES * PANEL_BYTES + tile16 * 16 * ROW_BYTES;
            if constexpr (DOUBLE) {
#pragma unroll
                for (int half = 0; half < 2; ++half)
#pragma unroll
                    for (int pair = 0; pair < PARTS / 2; ++pair) {
                        // Chunks t and 4 + t of a row: K 2 t, 2 t + 1 and 8 + 2 t, 9 + 2 t.
                        double two[2];
                        ld_shared(two, (address ^ pair * 64) + half * 8 * ROW_BYTES);
                        put(words, half, 2 * pair, two[0]);
                        put(words, half, 2 * pair + 1, two[1]);
                    }
            } else {
                load_four<false>(words, address);
            }
        } else {
            const int byte = tile16 * 16 * SIZE;
            const unsigned address = stage + (from ^ byte % ROW_BYTES) + byte / ROW_BYTES * PANEL_BYTES +
                                     k_block * K_BLOCK_LINES * ROW_BYTES;
            if constexpr (DOUBLE) {
#pragma unroll
                for (int part = 0; part < PARTS; ++part) {
                    // Line 2 t + part % 2 + part / 2 * 8, of which an odd one has its chunks exchanged.
                    double two[2];
                    ld_shared(two, swapped(address, part % 2, 16) + (part % 2 + part / 2 * 8) * ROW_BYTES);
                    put(words, 0, part, two[0]);
                    put(words, 1, part, two[1]);
                }
            } else if constexpr (SIZE == 2) {
                load_four<true>(words, address);
            } else if constexpr (SIZE == 1) {
                unsigned pairs[4];
                ldmatrix_x4<true>(pairs, address);
#pragma unroll
                for (int part = 0; part < PARTS; ++part)
#pragma unroll
                    for (int half = 0; half < 2; ++half)
                        put(words, half, part,
                            __byte_perm(pairs[2 * part], pairs[2 * part + 1], selectors + half * 0x1111));
            } else {
#pragma unroll
                for (int part = 0; part < PARTS; ++part) {
                    // Line t + 4 * part, which has its chunks exchanged by four more.
                    unsigned four[4];
                    ld_shared(four, swapped(address, part, 64) + part * 4 * ROW_BYTES);
#pragma unroll
                    for (int i = 0; i < 4; ++i) put(words + i / 2 * WORDS, i % 2, part, four[i]);
                }
            }
        }
        if constexpr (SIZE == 4 && ROUND_TF32) {
#pragma unroll
            for (int i = 0; i < PLACEMENT::TILES16 * WORDS; ++i) words[i] = rounded_to_tf32(words[i]);
        }
    }

  private:
    static __device__ __forceinline__ void put(WORD* words, int half, int part, WORD word) {
        words[FOR_A ? half + 2 * part : part + PARTS * half] = word;
    }

    static __device__ __forceinline__ unsigned swapped(unsigned address, int odd, unsigned bytes) {
        return PANELS::SWIZZLED && odd ? address ^ bytes : address;
    }

    template <bool TRANSPOSED>
    static __device__ __forceinline__ void load_four(WORD* words, unsigned address) {
        unsigned four[4];
        ldmatrix_x4<TRANSPOSED>(four, address);
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = four[i];
    }
};

// The fragments of one k-block of a warp tile.
template <typename OPERATION, typename TILE>
struct MmaFragments {
    static constexpr int TILES16_A = TILE::WM / 16, TILES16_B = TILE::WN / 16;
    static_assert(TILE::WM % 16 == 0 && TILE::WN % 16 == 0, "a warp tile is whole tiles16 of 16");
    typename OPERATION::WORD a[TILES16_A][OPERATION::A_WORDS];
    typename OPERATION::WORD b[2 * TILES16_B][OPERATION::B_WORDS];
};

// Reads a warp's fragments out of stages.
template <typename OPERATION, typename TILE, bool SWIZZLED, bool ROUND_TF32 = true>
struct MmaFragmentLoader {
    using STAGE = MmaStage<OPERATION, TILE, SWIZZLED>;
    using LOADER_A = FragmentLoader<typename STAGE::A, true, OPERATION::K_BLOCK_BYTES, ROUND_TF32>;
    using LOADER_B = FragmentLoader<typename STAGE::B, false, OPERATION::K_BLOCK_BYTES, ROUND_TF32>;
    static constexpr int TOGETHER_A = LOADER_A::PLACEMENT::TILES16, TOGETHER_B = LOADER_B::PLACEMENT::TILES16;
    using FRAGMENTS = MmaFragments<OPERATION, TILE>;
    static_assert(FRAGMENTS::TILES16_A % TOGETHER_A == 0 && FRAGMENTS::TILES16_B % TOGETHER_B == 0,
                  "TF32 operands that are not K-major are loaded 32 rows (columns) at a time");
    static __device__ constexpr bool fits(int bytes) { return bytes % 128 == 0 || 128 % bytes == 0; }
    static_assert(STAGE::A::K_MAJOR || fits(TILE::WM * sizeof(typename OPERATION::ELEMENT)),
                  "a warp's part of a line is whole panels, or a panel is whole parts");
    static_assert(STAGE::B::K_MAJOR || fits(TILE::WN * sizeof(typename OPERATION::ELEMENT)),
                  "a warp's part of a line is whole panels, or a panel is whole parts");

    LOADER_A a;
    LOADER_B b;

    __device__ __forceinline__ MmaFragmentLoader() : a(TILE::warp_row()), b(TILE::warp_column()) {}

    // Rows of A: TOGETHER_A 16-tiles from number `tile16` on.
    __device__ __forceinline__ void load_a(typename OPERATION::WORD* words, unsigned stage, int tile16,
                                           int k_block) const {
        a.load(words, stage, tile16, k_block);
    }

    // Columns of B, in LOADS_B loads: number `load` of them, or all.
    static constexpr int LOADS_B = FRAGMENTS::TILES16_B / TOGETHER_B;
    __device__ __forceinline__ void load_b(typename OPERATION::WORD (&words)[TILE::WN / 8][OPERATION::B_WORDS],
                                           unsigned stage, int load, int k_block) const {
        b.load(&words[2 * TOGETHER_B * load][0], stage + STAGE::B_OFFSET, TOGETHER_B * load, k_block);
    }
    __device__ __forceinline__ void load_b(typename OPERATION::WORD (&words)[TILE::WN / 8][OPERATION::B_WORDS],
                                           unsigned stage, int k_block) const {
#pragma unroll
        for (int load = 0; load < LOADS_B; ++load) load_b(words, stage, load, k_block);
    }

    __device__ __forceinline__ void load(FRAGMENTS& fragments, unsigned stage, int k_block) const {
#pragma unroll
        for (int tile16 = 0; tile16 < FRAGMENTS::TILES16_A; tile16 += TOGETHER_A)
            load_a(&fragments.a[tile16][0], stage, tile16, k_block);
        load_b(fragments.b, stage, k_block);
    }
};

// A warp's accumulators, fragment by fragment.
template <typename OPERATION, typename TILE>
struct MmaAccumulators {
    static constexpr int ROWS = TILE::WM / 16, COLUMNS = TILE::WN / 8;
    typename OPERATION::REGISTER at[ROWS][COLUMNS][OPERATION::C_REGISTERS];

    __device__ __forceinline__ void zero() {
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
                for (int r = 0; r < OPERATION::C_REGISTERS; ++r) at[i][j][r] = 0;
    }

    // Issues the MMAs of one 16-tile of A; every other row of fragments goes backwards, so that the fragment of B at
    // which a row ends is the one at which the next begins.
    __device__ __forceinline__ void multiply_row(int i, const typename OPERATION::WORD* a,
                                                 const typename OPERATION::WORD (&b)[COLUMNS][OPERATION::B_WORDS]) {
#pragma unroll
        for (int number = 0; number < COLUMNS; ++number) {
            const int j = i % 2 ? COLUMNS - 1 - number : number;
            OPERATION::multiply(at[i][j], a, b[j]);
        }
    }

    __device__ __forceinline__ void multiply(const MmaFragments<OPERATION, TILE>& fragments) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) multiply_row(i, fragments.a[i], fragments.b);
    }
};

}  // namespace warptile
