// One stage the plain way: each packet's addresses are worked out when it is copied, each k-block's fragments are
// loaded when they are multiplied.
#pragma once

#include "tile/mma_epilogue.cuh"
#include "tile/mma_staging.cuh"

namespace warptile {

// Bytes of a block's shared memory: STAGES stages while it multiplies, patches once it stores.
template <typename STAGE, typename OPERATION, typename TILE, int STAGES = 1>
inline constexpr int MMA_MEMORY_BYTES = STAGES * STAGE::BYTES > TILE::WARPS* int(sizeof(MmaPatch<OPERATION, TILE>))
                                            ? STAGES * STAGE::BYTES
                                            : TILE::WARPS * int(sizeof(MmaPatch<OPERATION, TILE>));

// Copies one operand's tile, `origin` its corner in the matrix, of which `extent` rows (columns) and `k_left` units of
// K are left; what lies outside becomes zero. WHOLE says that nothing does. Neighbouring threads copy neighbouring
// packets of a line.
template <typename COPY, typename PANELS, int THREADS, bool WHOLE, int UNROLL>
__device__ __forceinline__ void copy_panels(unsigned panels, const typename PANELS::ELEMENT* origin, long long ld,
                                            int extent, int k_left) {
    constexpr int UNIT = PANELS::UNIT_BYTES, LINE_PACKETS = PANELS::LINE_BYTES / COPY::BYTES;
    constexpr int PACKETS = PANELS::LINES * LINE_PACKETS;
    const int lines = PANELS::K_MAJOR ? extent : k_left, units = PANELS::K_MAJOR ? k_left : extent;
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
// in flight at once; those with predicates stay a rolled loop, or they would take registers from the mainloop.
template <typename COPY, typename PANELS, int THREADS, int UNROLL>
__device__ __forceinline__ void stage_panels(unsigned panels, const typename PANELS::ELEMENT* origin, long long ld,
                                             int extent, int k_left) {
    if (extent >= PANELS::EXTENT && k_left >= PANELS::K_EXTENT) {
        copy_panels<COPY, PANELS, THREADS, true, UNROLL>(panels, origin, ld, extent, k_left);
    } else {
        copy_panels<COPY, PANELS, THREADS, false, 1>(panels, origin, ld, extent, k_left);
    }
}

// Loads K tile [k_offset, k_offset + BK) of the operands of the block tile at (row, column) to the stage at `stage`.
template <template <int> class COPY, typename STAGE, typename TILE, typename ACCESS, int UNROLL, typename OPERATION>
__device__ __forceinline__ void stage_operands(unsigned stage, const GemmParams<OPERATION>& gemm, int row, int column,
                                               int k_offset) {
    stage_panels<COPY<ACCESS::A>, typename STAGE::A, TILE::THREADS, UNROLL>(stage, gemm.a_at(row, k_offset), gemm.lda,
                                                                            gemm.m - row, gemm.k - k_offset);
    stage_panels<COPY<ACCESS::B>, typename STAGE::B, TILE::THREADS, UNROLL>(
        stage + STAGE::B_OFFSET, gemm.b_at(k_offset, column), gemm.ldb, gemm.n - column, gemm.k - k_offset);
}

// All k-blocks of a stage, one set of fragments.
template <typename OPERATION, typename TILE, typename LOADER>
__device__ __forceinline__ void multiply_stage(MmaAccumulators<OPERATION, TILE>& accumulators, const LOADER& loader,
                                               unsigned stage) {
    static_assert(TILE::BK % OPERATION::K_BLOCK == 0, "a stage is a whole number of k-blocks deep");
#pragma unroll
    for (int k_block = 0; k_block < TILE::BK / OPERATION::K_BLOCK; ++k_block) {
        MmaFragments<OPERATION, TILE> fragments;
        loader.load(fragments, stage, k_block);
        accumulators.multiply(fragments);
    }
}

}  // namespace warptile
