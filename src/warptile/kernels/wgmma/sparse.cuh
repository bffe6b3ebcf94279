// wgmma-sparse: 2:4 structured sparsity. TMA loads A at half its size; the metadata, which says where in K each stored
// element belongs, is loaded straight into registers of the consumers.
#pragma once

#include "ptx/griddepcontrol.cuh"
#include "tile/tile_scheduler.cuh"
#include "tile/wgmma_epilogue.cuh"
#include "tile/wgmma_mainloop.cuh"
#include "tile/wgmma_params.cuh"

namespace warptile {

// One K tile in shared memory: the stored half of A, then all of B.
template <typename OPERATION, typename TILE>
struct SparseWgmmaStage {
    using A = WgmmaSmemTile<typename OPERATION::ELEMENT, TILE::BM, TILE::BK / 2, true>;
    using B = WgmmaSmemTile<typename OPERATION::ELEMENT, TILE::BN, TILE::BK, OPERATION::B_COLUMN_MAJOR>;
    static constexpr int B_OFFSET = A::BYTES, BYTES = A::BYTES + B::BYTES, K_BLOCKS = A::K_BLOCKS;
};

// The metadata of A, packed (`warptile.sparse`): for each 64 bytes of K one word for each lane and ROWS rows. With 32
// rows the lower two of each four lanes hold the words of the first 16 rows, the upper two those of the others: an odd
// warp takes the words of the neighbouring lanes.
template <typename OPERATION, int M64_BLOCKS, int K_BLOCKS>
struct SparseMetadata {
    static constexpr int ROWS = sizeof(typename OPERATION::ELEMENT) == 1 ? 16 : 32;
    const unsigned* words;
    int groups, k_blocks;  // of the whole matrix

    __device__ __forceinline__ SparseMetadata(const unsigned* words, int m, int k)
        : words(words),
          groups(tiles_along(m, ROWS)),
          k_blocks(max(1, static_cast<int>(tiles_along(k, 64 / sizeof(typename OPERATION::ELEMENT))))) {}

    // Loads the words of the blocks of 64 rows from `row` on, for K_BLOCKS k-blocks from `first` on. Past the end of
    // the matrix, where all products are zero, the last words are loaded again: the instruction needs valid metadata.
    __device__ __forceinline__ void load(unsigned (&loaded)[M64_BLOCKS][K_BLOCKS], int row, int first) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
#pragma unroll
        for (int m64 = 0; m64 < M64_BLOCKS; ++m64) {
            const int group = min((row + 64 * m64 + 16 * warp) / ROWS, groups - 1);
            const int word = group * 32 + (ROWS == 32 ? lane ^ warp % 2 * 2 : lane);
#pragma unroll
            for (int k_block = 0; k_block < K_BLOCKS; ++k_block)
                loaded[m64][k_block] =
                    __ldg(words + (static_cast<long long>(min(first + k_block, k_blocks - 1)) * groups * 32 + word));
        }
    }
};

template <typename OPERATION, bool STAGE_EPILOGUE>
struct WgmmaSparseParams : EpilogueMaps<OPERATION, STAGE_EPILOGUE> {
    GemmParams<OPERATION> gemm;
    TensorMap map_a, map_b, map_d;
    const unsigned* metadata;
};

template <typename CONFIG>
__global__ void __launch_bounds__(3 * WARPGROUP, 1)
    wgmma_sparse(const __grid_constant__ WgmmaSparseParams<typename CONFIG::OPERATION, CONFIG::STAGE_EPILOGUE> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    constexpr bool STORE_BY_TMA = CONFIG::STORE_BY_TMA;
    constexpr int STORE_WIDTH = CONFIG::STORE_WIDTH, STAGES = CONFIG::STAGES, GROUP = CONFIG::GROUP;
    const GemmParams<OPERATION> gemm = params.gemm.values();
    constexpr int CONSUMERS = 2, M64_BLOCKS = TILE::BM / 64 / CONSUMERS;
    using STAGE = SparseWgmmaStage<OPERATION, TILE>;
    using PIPELINE = Pipeline<STAGES, STAGE::BYTES>;
    using EPILOGUE = WgmmaEpilogue<OPERATION, TILE, STORE_BY_TMA, STORE_WIDTH, false, false, 1, false, false,
                                   CONFIG::STAGE_EPILOGUE>;
    using INSTRUCTION = SparseWgmma<typename OPERATION::ELEMENT, typename OPERATION::MMA_ACCUMULATOR, TILE::BN>;
    extern __shared__ __align__(1024) unsigned char memory[];
    const unsigned stages = shared_address(memory), epilogue_buffers = stages + STAGES * STAGE::BYTES;
    const PIPELINE pipeline{stages, epilogue_buffers + CONSUMERS * EPILOGUE::BYTES};
    const auto epilogue_pipeline = [&](int consumer) {
        return typename EPILOGUE::PIPELINE{
            epilogue_buffers + consumer * EPILOGUE::BYTES,
            pipeline.barriers + PIPELINE::BARRIER_BYTES + consumer * EPILOGUE::PIPELINE::BARRIER_BYTES};
    };
    if (threadIdx.x == 0) {
        pipeline.init(CONSUMERS);
        if constexpr (CONFIG::STAGE_EPILOGUE)
            for (int consumer = 0; consumer < CONSUMERS; ++consumer) epilogue_pipeline(consumer).init(1);
    }
    __syncthreads();
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();

    TileScheduler<TILE, 1, 1, GROUP, false> scheduler(gemm.m, gemm.n, gemm.k, 0, 0);
    WorkTile work;
    typename PIPELINE::STATE state;
    const int group = warpgroup_index();
    if (group == 0) {
        setmaxnreg_dec<24>();
        const int outside = gemm.k > 0 ? 0 : TILE::BK;
        if (elect_one_of_warp(0))
            while (scheduler.next(work)) {
                for (int k_tile = 0; k_tile < work.k_tiles; ++k_tile) {
                    pipeline.producer_acquire(state);
                    const unsigned stage = pipeline.stage_address(state.stage),
                                   full = pipeline.full_barrier(state.stage);
                    const int k_offset = k_tile * TILE::BK + outside;
                    mbarrier_arrive_expect_tx(full, STAGE::BYTES);
                    STAGE::A::load(stage, params.map_a, work.row, k_offset / 2, full);
                    STAGE::B::load(stage + STAGE::B_OFFSET, params.map_b, work.column, k_offset, full);
                    state.advance();
                }
            }
    } else {
        setmaxnreg_inc<240>();
        const int consumer = group - 1, first_row = consumer * M64_BLOCKS * 64;
        EPILOGUE epilogue{gemm, params.map_d, epilogue_pipeline(consumer), group, 0, 0, params.epilogue_maps()};
        const SparseMetadata<OPERATION, M64_BLOCKS, STAGE::K_BLOCKS> metadata(params.metadata, gemm.m, gemm.k);
        AccumulatorTile<INSTRUCTION, typename OPERATION::ACC_ELEMENT, TILE::BN, M64_BLOCKS> accumulators;
        unsigned sets[2][M64_BLOCKS][STAGE::K_BLOCKS];  // of metadata: in use, and of the next K tile
        int previous = 0;
        while (scheduler.next(work)) {
            epilogue.begin_staging(work.row + first_row, work.column, M64_BLOCKS * EPILOGUE::SUBTILES::COUNT);
            const auto multiply = [&](int k_tile, int set) {
                pipeline.consumer_wait(state);
                const unsigned stage = pipeline.stage_address(state.stage);
                const auto from_a = STAGE::A::descriptor(stage) + STAGE::A::descriptor_offset(first_row, 0);
                const auto from_b = STAGE::B::descriptor(stage + STAGE::B_OFFSET);
                wgmma_fence();
#pragma unroll
                for (int k_block = 0; k_block < STAGE::K_BLOCKS; ++k_block)
#pragma unroll
                    for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
                        INSTRUCTION::template mma_async<0, false, !OPERATION::B_COLUMN_MAJOR>(
                            accumulators.c[m64], from_a + STAGE::A::descriptor_offset(64 * m64, k_block),
                            from_b + STAGE::B::descriptor_offset(0, 2 * k_block), sets[set][m64][k_block],
                            k_block > 0 || k_tile > 0);
                wgmma_commit_group();
                wgmma_wait_group<1>();
                // The previous stage has been read, and so has the other set.
                if (k_tile > 0 && threadIdx.x % WARPGROUP == 0) mbarrier_arrive(pipeline.empty_barrier(previous));
                metadata.load(sets[1 - set], work.row + first_row, (k_tile + 1) * STAGE::K_BLOCKS);
                previous = state.stage;
                state.advance();
            };
            metadata.load(sets[0], work.row + first_row, 0);
            int k_tile = 0;
            for (; k_tile + 1 < work.k_tiles; k_tile += 2) {
                multiply(k_tile, 0);
                multiply(k_tile + 1, 1);
            }
            if (k_tile < work.k_tiles) multiply(k_tile, 0);
            wgmma_wait_group<0>();
            accumulators.fence_operands();
            if (threadIdx.x % WARPGROUP == 0) mbarrier_arrive(pipeline.empty_barrier(previous));
            epilogue.template store_all<true>(accumulators, work.row + first_row, work.column);
        }
        epilogue.finish();
    }
}

}  // namespace warptile
