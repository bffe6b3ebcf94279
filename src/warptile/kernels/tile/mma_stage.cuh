// One stage the plain way: each packet's addresses are worked out when it is copied, each step's fragments are loaded
// when they are multiplied.
#pragma once

#include "tile/mma_epilogue.cuh"
#include "tile/mma_staging.cuh"

namespace warptile {

// Bytes of a block's shared memory: STAGES stages while it multiplies, patches once it stores.
template <typename STAGE, typename OPERATION, typename TILE, int STAGES = 1>
inline constexpr int MMA_MEMORY_BYTES = STAGES * STAGE::BYTES > TILE::WARPS * int(sizeof(MmaPatch<OPERATION, TILE>))
                                            ? STAGES * STAGE::BYTES
                                            : TILE::WARPS * int(sizeof(MmaPatch<OPERATION, TILE>));

// Copies one operand's tile, `origin` its corner in the matrix, of which `extent` rows (columns) and `depth` units of
// K are left; what lies outside becomes zero. WHOLE says that nothing does. Neighbouring threads copy neighbouring
// packets of a line.
template <typename COPY, typename PANELS, int THREADS, bool WHOLE, int UNROLL>
__device__ __forceinline__ void copy_panels(unsigned panels, const typename PANELS::ELEMENT* origin, long long ld,
                                            int extent, int depth) {
    constexpr int UNIT = PANELS::UNIT_BYTES, LINE_PACKETS = PANELS::LINE_BYTES / COPY::BYTES;
    constexpr int PACKETS = PANELS::LINES * LINE_PACKETS;
    const int lines = PANELS::K_MAJOR ? extent : depth, units = PANELS::K_MAJOR ? depth : extent;
#pragma unroll UNROLL
    for (int first = 0; first < PACKETS; first += THREADS) {
        const int index = first + static_cast<int>(threadIdx.x);
        if (PACKETS % THREADS != 0 && index >= PACKETS) break;
        const int line = index / LINE_PACKETS, byte = index % LINE_PACKETS * COPY::BYTES;
        const char* global = reinterpret_cast<const char*>(origin + line * ld) + byte;
        const unsigned shared = panels + PANELS::offset(line, byte);
        if constexpr (WHOLE) {
            COPY::whole(shared, global);
        } else {
            const int valid = line < lines ? min(max(units - byte / UNIT, 0), COPY::BYTES / UNIT) * UNIT : 0;
            COPY::template part<UNIT>(shared, global, valid);
        }
    }
}

// The same with the choice made once for the block: tiles inside the matrix carry no predicates. UNROLL copies are
// under way at once; those with predicates stay a rolled loop, or they would take registers from the main loop.
template <typename COPY, typename PANELS, int THREADS, int UNROLL>
__device__ __forceinline__ void stage_panels(unsigned panels, const typename PANELS::ELEMENT* origin, long long ld,
                                             int extent, int depth) {
    if (extent >= PANELS::EXTENT && depth >= PANELS::DEPTH) {
        copy_panels<COPY, PANELS, THREADS, true, UNROLL>(panels, origin, ld, extent, depth);
    } else {
        copy_panels<COPY, PANELS, THREADS, false, 1>(panels, origin, ld, extent, depth);
    }
}

// Brings the operands of depth [depth, depth + BK) of the block tile at (row, column) to the stage at `stage`.
template <template <int> class COPY, typename STAGE, typename TILE, typename ACCESS, int UNROLL, typename OPERATION>
__device__ __forceinline__ void stage_operands(unsigned stage, const Gemm<OPERATION>& gemm, int row, int column,
                                               int depth) {
    stage_panels<COPY<ACCESS::A>, typename STAGE::A, TILE::THREADS, UNROLL>(
        stage, gemm.a_at(row, depth), gemm.lda, gemm.m - row, gemm.k - depth);
    stage_panels<COPY<ACCESS::B>, typename STAGE::B, TILE::THREADS, UNROLL>(
        stage + STAGE::B_OFFSET, gemm.b_at(depth, column), gemm.ldb, gemm.n - column, gemm.k - depth);
}

// The whole depth of a stage, one set of fragments.
template <typename OPERATION, typename TILE, typename READER>
__device__ __forceinline__ void multiply_stage(MmaAccumulators<OPERATION, TILE>& accumulators, const READER& reader,
                                               unsigned stage) {
    static_assert(TILE::BK % OPERATION::STEP == 0, "a stage is a whole number of steps deep");
#pragma unroll
    for (int step = 0; step < TILE::BK / OPERATION::STEP; ++step) {
        MmaFragments<OPERATION, TILE> fragments;
        reader.load(fragments, stage, step);
        accumulators.multiply(fragments);
    }
}

}  // namespace warptile
