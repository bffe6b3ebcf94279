// Stages that TMA fills for mma.sync: a box for each panel, and an mbarrier for each stage that counts their bytes.
#pragma once

#include "ptx/cp_async_bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"
#include "tile/mma_stage.cuh"

namespace warptile {

// The kernel's parameters: what GemmParams says of A and B, TMA reads from their tensor maps.
template <typename OPERATION>
struct MmaTmaParams {
    GemmParams<OPERATION> gemm;
    TensorMap map_a, map_b;
};

// Starts the loads of one operand's K tile: row (column) `start`, unit `k_offset` along K, of matrix `matrix` of a
// batch. A panel is one box, and its bytes complete `barrier`. What lies outside the matrix arrives as zeros.
template <typename PANELS, bool BATCHED>
__device__ __forceinline__ void load_panels(unsigned to, const TensorMap& map, int start, int k_offset, int matrix,
                                            unsigned barrier) {
    static_assert(PANELS::LINES <= 256, "a box has at most 256 lines");
    constexpr int ROW = PANELS::ROW_BYTES / PANELS::UNIT_BYTES;
    const int x = PANELS::K_MAJOR ? k_offset : start, y = PANELS::K_MAJOR ? start : k_offset;
#pragma unroll
    for (int panel = 0; panel < PANELS::LINE_BYTES / PANELS::ROW_BYTES; ++panel) {
        if constexpr (BATCHED) {
            cp_async_bulk_tensor_load_3d(to + panel * PANELS::PANEL_BYTES, map, x + panel * ROW, y, matrix, barrier);
        } else {
            cp_async_bulk_tensor_load_2d(to + panel * PANELS::PANEL_BYTES, map, x + panel * ROW, y, barrier);
        }
    }
}
template <typename PANELS>
__device__ __forceinline__ void load_panels(unsigned to, const TensorMap& map, int start, int k_offset,
                                            unsigned barrier) {
    load_panels<PANELS, false>(to, map, start, k_offset, 0, barrier);
}

// A CTA's stages and, behind them (and behind the patches, which reuse them), an mbarrier for each. It is also the
// mainloop's state: the tile that is multiplied and the stage that it is in, by its distance from the first in bytes.
template <typename OPERATION, typename TILE, int STAGES, bool SWIZZLED>
struct MmaTmaPipeline {
    using STAGE = MmaStage<OPERATION, TILE, SWIZZLED>;
    static_assert(STAGE::B_OFFSET % 1024 == 0 && STAGE::BYTES % 1024 == 0,  // true of all tiles of two k-blocks
                  "boxes start at multiples of 1024 bytes, where the swizzle repeats");
    static_assert(STAGES >= 2, "a pipeline has a stage to fill beside the one that is read");
    const TensorMap &map_a, &map_b;
    const int row, column;  // of D, where the CTA's tile begins
    const int tiles_k;
    const unsigned stages, barriers;
    int tile = 0;
    unsigned reading = 0, stage = 0, phase = 0;

    __device__ __forceinline__ MmaTmaPipeline(const MmaTmaParams<OPERATION>& params, unsigned memory, int row,
                                              int column, int k)
        : map_a(params.map_a),
          map_b(params.map_b),
          row(row),
          column(column),
          tiles_k(tiles_along(k, TILE::BK)),
          stages(memory),
          barriers(memory + MMA_MEMORY_BYTES<STAGE, OPERATION, TILE, STAGES>) {}

    // Thread 0 initialises the barriers and starts the loads of the first STAGES - 1 tiles; then everyone waits for the
    // first.
    __device__ __forceinline__ void start() {
        if (threadIdx.x == 0) {
            for (unsigned each = 0; each < STAGES; ++each) mbarrier_init(full(each), 1);
            fence_mbarrier_init();
            for (int ahead = 0; ahead < STAGES - 1; ++ahead) load(ahead, ahead);
        }
        __syncthreads();  // the barriers are initialised
        if (tiles_k > 0) mbarrier_wait(full(0), 0);
    }

    // All loads of a tile are started at once: `part` 0 is all there is.
    static __device__ constexpr int copy_k_blocks(int) { return 1; }
    template <bool, int, typename ITERATOR>
    __device__ __forceinline__ void stage_ahead(ITERATOR&, unsigned, int) const {
        if (threadIdx.x == 0) load(tile + STAGES - 1, stage == 0 ? STAGES - 1 : stage - 1);
    }

    // Goes on to the next tile, whose bytes have arrived when its barrier's phase completes. Behind __syncthreads no
    // thread reads the stage of the present tile any more.
    __device__ __forceinline__ void advance() {
        reading += STAGE::BYTES;
        if (++stage == STAGES) {
            reading = stage = 0;
            phase ^= 1;
        }
        if (tile + 1 < tiles_k) mbarrier_wait(full(stage), phase);
        __syncthreads();
    }

  private:
    __device__ __forceinline__ unsigned full(unsigned stage) const { return barriers + stage * MBARRIER_BYTES; }

    // One thread: loads K tile `which`, if there is one, to stage number `to`.
    __device__ __forceinline__ void load(int which, unsigned to) const {
        if (which >= tiles_k) return;
        const unsigned at = stages + to * STAGE::BYTES, barrier = full(to);
        mbarrier_arrive_expect_tx(barrier, STAGE::BYTES);
        load_panels<typename STAGE::A>(at, map_a, row, which * TILE::BK, barrier);
        load_panels<typename STAGE::B>(at + STAGE::B_OFFSET, map_b, column, which * TILE::BK, barrier);
    }
};

}  // namespace warptile
