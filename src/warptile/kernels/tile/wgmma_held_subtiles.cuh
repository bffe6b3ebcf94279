// The overlapped epilogue: subtiles of a finished tile that wait in registers for the next tile's mainloop.
#pragma once

#include "tile/wgmma_epilogue.cuh"

namespace warptile {

// Most registers of a consumer's thread for accumulators and held subtiles together.
inline constexpr int HELD_REGISTERS = 192;

// How many of COUNT subtiles, of WORDS registers of a thread each, fit beside the next tile's accumulators.
template <int COUNT, int WORDS, int ACCUMULATOR_REGISTERS>
__device__ constexpr int held_subtiles() {
    const int fit = ACCUMULATOR_REGISTERS < HELD_REGISTERS ? (HELD_REGISTERS - ACCUMULATOR_REGISTERS) / WORDS : 0;
    return fit < COUNT ? fit : COUNT;
}

// Keeps a conversion where it is written. The compiler would move it to where the element is stored, amid the next
// tile's wgmmas: the unconverted accumulators would then need registers beside the next ones, and spill.
template <typename OUT>
__device__ __forceinline__ void hold(Vector<OUT, 2>& pair) {
    static_assert(sizeof(pair) == 2 || sizeof(pair) % 4 == 0, "held as words, or half of one");
    if constexpr (sizeof(pair) == 2) asm volatile("" : "+h"(*reinterpret_cast<unsigned short*>(&pair))::"memory");
#pragma unroll
    for (int word = 0; word < sizeof(pair) / 4; ++word)
        asm volatile("" : "+r"(reinterpret_cast<unsigned*>(&pair)[word])::"memory");
}

// What the overlapped epilogue does when a tile is finished: it stores the first AT_ONCE subtiles, or leaves that to
// the store warp, and keeps the others in `held`, converted to D's type. `reader` is the epilogue's `reader_of` this
// part of D. WITH_C: beta is not zero.
template <bool HAS_STORE_WARP, int AT_ONCE, bool WITH_C, bool HOLD, int M64_BLOCKS, int N8_BLOCKS,
          typename ACCUMULATORS, typename EPILOGUE, typename OPERATION, typename READER>
__device__ __forceinline__ void finish_tile_with(Vector<typename OPERATION::OUT, 2> (&held)[M64_BLOCKS][N8_BLOCKS][2],
                                                 const ACCUMULATORS& accumulators, EPILOGUE& epilogue,
                                                 const GemmParams<OPERATION>& gemm, READER& reader, int row,
                                                 int column) {
    using SUBTILES = typename EPILOGUE::SUBTILES;
    constexpr int END = M64_BLOCKS * SUBTILES::COUNT;
#pragma unroll
    for (int subtile = 0; subtile < AT_ONCE; ++subtile)
        epilogue.template store_or_enqueue<HAS_STORE_WARP>(
            subtile, row, column,
            EPILOGUE::template pairs_of<WITH_C, END>(accumulators, gemm, reader, subtile, row, column));
    if constexpr (GemmParams<OPERATION>::EPILOGUE::FUSED) {
        static_assert(SUBTILES::DOWN == 1 || AT_ONCE == 0, "a thread has a part of each subtile");
        constexpr int N8_BLOCKS_OF_SUBTILE = SUBTILES::COLUMNS / 8;
#pragma unroll
        for (int subtile = AT_ONCE; subtile < END; ++subtile) {
            const int of_m64 = subtile % SUBTILES::COUNT;
            if (of_m64 >= SUBTILES::ACROSS) continue;  // computed with the subtile above it
            const int next = of_m64 + 1 < SUBTILES::ACROSS ? subtile + 1 : subtile - of_m64 + SUBTILES::COUNT;
            auto* pairs = &held[subtile / SUBTILES::COUNT][of_m64 * N8_BLOCKS_OF_SUBTILE];
            reader.template compute<WITH_C>(pairs, accumulators, subtile, next < END ? next : READER::NONE);
#pragma unroll
            for (int n8 = 0; n8 < N8_BLOCKS_OF_SUBTILE; ++n8)
#pragma unroll
                for (int half = 0; half < 2; ++half) hold(pairs[n8][half]);
        }
    } else {
#pragma unroll
        for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
#pragma unroll
            for (int n8 = 0; n8 < N8_BLOCKS; ++n8)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    if (m64 * SUBTILES::COUNT + n8 / (SUBTILES::COLUMNS / 8) >= AT_ONCE) {
                        held[m64][n8][half] = epilogue_pair<WITH_C>(accumulators, gemm, m64, n8, half, row, column);
                        if constexpr (HOLD) hold(held[m64][n8][half]);
                    }
    }
}

// The same, with two copies of the code unless it is known that there is no C: the compiler does not know that beta is
// the same for all threads, and would branch at every pair of elements. (Behind that branch no conversion moves.)
template <bool HAS_STORE_WARP, int AT_ONCE, bool READS_C = true, typename HELD, typename ACCUMULATORS,
          typename EPILOGUE, typename OPERATION, typename READER>
__device__ __forceinline__ void finish_tile(HELD& held, const ACCUMULATORS& accumulators, EPILOGUE& epilogue,
                                            const GemmParams<OPERATION>& gemm, READER& reader, int row, int column) {
    if constexpr (!READS_C) {
        finish_tile_with<HAS_STORE_WARP, AT_ONCE, false, true>(held, accumulators, epilogue, gemm, reader, row, column);
    } else if (gemm.beta == typename OPERATION::SCALE(0)) {
        finish_tile_with<HAS_STORE_WARP, AT_ONCE, false, false>(held, accumulators, epilogue, gemm, reader, row,
                                                                column);
    } else {
        finish_tile_with<HAS_STORE_WARP, AT_ONCE, true, false>(held, accumulators, epilogue, gemm, reader, row, column);
    }
}

}  // namespace warptile
