// wgmma-dependent-launch: the kernel starts while the one before it in the stream still stores its last tiles. What
// touches no operand, the prologue, runs meanwhile; then every thread waits for the end of that kernel.
#pragma once

#include "ptx/griddepcontrol.cuh"
#include "tile/tile_scheduler.cuh"
#include "tile/wgmma_epilogue.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"

namespace warptile {

template <typename CONFIG>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_dependent_launch(const __grid_constant__ WgmmaStoreParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr bool STORE_BY_TMA = CONFIG::STORE_BY_TMA;
    constexpr int STORE_WIDTH = CONFIG::STORE_WIDTH, STAGES = CONFIG::STAGES, GROUP = CONFIG::GROUP;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    constexpr int CONSUMERS = 2, ROWS = TILE::BM / CONSUMERS;
    using EPILOGUE = WgmmaEpilogue<OPERATION, TILE, STORE_BY_TMA, STORE_WIDTH>;
    using MAINLOOP = WgmmaMainloop<OPERATION, TILE, STAGES, CONSUMERS * EPILOGUE::BYTES>;
    extern __shared__ __align__(1024) unsigned char memory[];

    // Prologue: parameters and shared memory alone.
    MAINLOOP mainloop(memory);
    if (threadIdx.x == 0) {
        prefetch_tensormap(params.map_a);
        prefetch_tensormap(params.map_b);
        if (STORE_BY_TMA) prefetch_tensormap(params.map_d);
        mainloop.pipeline.init(CONSUMERS);
    }
    __syncthreads();
    TileScheduler<TILE, 1, 1, GROUP, false> scheduler(gemm.m, gemm.n, gemm.k, 0, 0);
    WorkTile work;
    bool more = scheduler.next(work);
    griddepcontrol_wait();  // every thread: from here on operands hold what the kernel before has written

    const int group = warpgroup_index();
    if (group == 0) {
        setmaxnreg_dec<24>();
        if (threadIdx.x == 0)
            for (; more; more = scheduler.next(work))
                mainloop.load(params.map_a, params.map_b, work.row, work.column, gemm.k);
    } else {
        setmaxnreg_inc<240>();
        const int consumer = group - 1;
        WgmmaAccumulators<OPERATION, TILE, ROWS / 64> accumulators;
        EPILOGUE epilogue{gemm, params.map_d, {mainloop.extra() + consumer * EPILOGUE::BYTES, 0}, group};
        for (; more; more = scheduler.next(work)) {
            mainloop.mma(accumulators, consumer * ROWS, work.k_tiles, [&](int stage) { mainloop.release(stage); });
            epilogue.store_all(accumulators, work.row + consumer * ROWS, work.column);
        }
        griddepcontrol_launch_dependents();  // the last stores are on their way: the next kernel may take this SM
        epilogue.finish();
    }
}

}  // namespace warptile
