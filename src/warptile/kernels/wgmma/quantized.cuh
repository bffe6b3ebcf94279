// wgmma-quantized: weights of 4 or 8 bits. The weights are the operand that wgmma takes from registers: packed codes
// come into shared memory by bulk copies, and each thread makes its fragments of them, so that weights cross DRAM and
// L2 at a quarter or half of their size.
#pragma once

#include "ptx/cp_async_bulk.cuh"
#include "ptx/griddepcontrol.cuh"
#include "tile/dequantization.cuh"
#include "tile/pipeline.cuh"
#include "tile/stream_k.cuh"
#include "tile/tile_scheduler.cuh"
#include "tile/wgmma_epilogue.cuh"
#include "wgmma/final/split_k.cuh"

namespace warptile {

template <typename OPERATION, bool STAGE_EPILOGUE>
struct WgmmaQuantizedParams : EpilogueMaps<OPERATION, STAGE_EPILOGUE> {
    GemmParams<OPERATION> gemm;  // `a` points to the packed blocks
    TensorMap map_b, map_d;
    unsigned char* partial_accumulators;
    unsigned* flags;
    int row_blocks, stream_k_tiles;
};

// What follows from a configuration.
template <typename CONFIG>
struct WgmmaQuantized {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    using BLOCK = QuantizedBlock<typename OPERATION::ELEMENT, CONFIG::BITS, CONFIG::GROUP_IN_BLOCK, CONFIG::ZERO_POINT>;
    static constexpr int CONSUMERS = CONFIG::CONSUMERS, CLUSTER = 1, STORE_WIDTH = CONFIG::STORE_WIDTH;
    static constexpr int M64_BLOCKS = TILE::BM / 64 / CONSUMERS, ROWS = 64 * M64_BLOCKS;
    static_assert(!CONFIG::SPLITS_K || !CONFIG::STREAM_K, "split-K or stream-K, not both");
    static_assert(TILE::BM % (64 * CONSUMERS) == 0 && TILE::BK == BLOCK::K, "whole blocks of weights");

    // A stage: blocks of weights, then the K tile of B.
    using B = WgmmaSmemTile<typename OPERATION::ELEMENT, TILE::BN, TILE::BK, OPERATION::B_COLUMN_MAJOR>;
    static constexpr int WEIGHT_BYTES = TILE::BM / 64 * BLOCK::BYTES, B_OFFSET = (WEIGHT_BYTES + 1023) / 1024 * 1024;
    using PIPELINE = Pipeline<CONFIG::STAGES, B_OFFSET + B::BYTES>;

    using ACCUMULATORS =
        AccumulatorTile<Wgmma<typename OPERATION::ELEMENT, typename OPERATION::MMA_ACCUMULATOR, TILE::BN>,
                        typename OPERATION::ACC_ELEMENT, TILE::BN, M64_BLOCKS>;
    using EPILOGUE = WgmmaEpilogue<OPERATION, TILE, CONFIG::STORE_BY_TMA, STORE_WIDTH, false, false, 1, false, false,
                                   CONFIG::STAGE_EPILOGUE>;
    // CTAs that split K finish a tile without it.
    static constexpr int EPILOGUE_BYTES = CONFIG::SPLITS_K ? 0 : EPILOGUE::BYTES;
    using SCHEDULER = TileScheduler<TILE, 1, 1, CONFIG::GROUP, false>;

    // With two consumers, registers of a thread of the producer and of a consumer.
    static constexpr int PRODUCER_REGISTERS = CONFIG::STREAM_K ? 56 : 40;
    static constexpr int CONSUMER_REGISTERS = CONFIG::STREAM_K ? 224 : 232;

    struct Workspace {
        unsigned char* accumulators;
        unsigned* flags;
        int stream_k_tiles;
    };

    // The blocks of a work tile in K tile `k_tile`.
    static __device__ __forceinline__ const unsigned char* blocks(const unsigned char* weights, int row_blocks,
                                                                  const WorkTile& work, int k_tile) {
        return weights + (static_cast<long long>(k_tile) * row_blocks + work.row / 64) * BLOCK::BYTES;
    }

    // The producer, one thread: loads a K tile. Weights that only this CTA reads need not stay in L2.
    static __device__ __forceinline__ void load(unsigned stage, unsigned full, const unsigned char* from,
                                                const TensorMap& map_b, const WorkTile& work, int k_tile) {
        mbarrier_arrive_expect_tx(full, WEIGHT_BYTES + B::BYTES);
        if constexpr (CONFIG::WEIGHTS_READ_ONCE) {
            cp_async_bulk_load_evict_first(stage, from, WEIGHT_BYTES, full);
        } else {
            cp_async_bulk_load(stage, from, WEIGHT_BYTES, full);
        }
        B::load(stage + B_OFFSET, map_b, work.column, k_tile * TILE::BK, full);
    }

    // What a consumer reads of its blocks before it multiplies a stage.
    struct Blocks {
        unsigned address;
        typename BLOCK::Part weights[M64_BLOCKS];
        typename BLOCK::Scales scales[M64_BLOCKS];
        bool have_small_scales;

        explicit __device__ __forceinline__ Blocks(unsigned address_) : address(address_) {
            load(0);
#pragma unroll
            for (int m64 = 0; m64 < M64_BLOCKS; ++m64) scales[m64].load(address + m64 * BLOCK::BYTES);
            have_small_scales = BLOCK::template has_small_scales<M64_BLOCKS>(address);
        }

        // Loads the codes of a part.
        __device__ __forceinline__ void load(int part) {
#pragma unroll
            for (int m64 = 0; m64 < M64_BLOCKS; ++m64) weights[m64].load(address + m64 * BLOCK::BYTES, part);
        }
    };

    // A consumer, one warpgroup: adds the products of a stage. A warp that issues wgmmas waits until the tensor core
    // takes them, and cannot dequantize meanwhile. So they are issued in groups of few k-blocks where each of them
    // takes long; one group is multiplied while the next one is dequantized, into the other of two sets of fragments.
    // When the second group of a stage begins, the stage before has been read: `release` it.
    static constexpr int K_BLOCKS_OF_GROUP = TILE::BN < 64 ? BLOCK::K_BLOCKS : 1;
    template <bool HAVE_SMALL_SCALES, typename RELEASE>
    static __device__ __forceinline__ void multiply(ACCUMULATORS& accumulators, unsigned stage, Blocks& blocks,
                                                    const RELEASE& release) {
        constexpr int GROUPS = BLOCK::PARTS * BLOCK::K_BLOCKS / K_BLOCKS_OF_GROUP;
        const unsigned long long b = B::descriptor(stage + B_OFFSET);
        unsigned fragments[2][M64_BLOCKS][K_BLOCKS_OF_GROUP][4];
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
            const int first = group * K_BLOCKS_OF_GROUP, part = first / BLOCK::K_BLOCKS, set = group % 2;
            if (part > 0 && first % BLOCK::K_BLOCKS == 0) blocks.load(part);
            wgmma_wait_group<1>();
            if (group == 1) release();
#pragma unroll
            for (int i = 0; i < K_BLOCKS_OF_GROUP; ++i)
#pragma unroll
                for (int m64 = 0; m64 < M64_BLOCKS; ++m64) {
                    blocks.weights[m64].template dequantize<HAVE_SMALL_SCALES>(
                        fragments[set][m64][i], blocks.scales[m64], part, (first + i) % BLOCK::K_BLOCKS);
                    // Or else the compiler moves some of this between the wgmmas, which it then serialises (C7513).
                    warpgroup_fence_operand(fragments[set][m64][i]);
                }
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < K_BLOCKS_OF_GROUP; ++i)
#pragma unroll
                for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
                    ACCUMULATORS::INSTRUCTION::template mma_async<false, !OPERATION::B_COLUMN_MAJOR>(
                        accumulators.c[m64], fragments[set][m64][i], b + B::descriptor_offset(0, first + i), true);
            wgmma_commit_group();
        }
    }
};

template <typename CONFIG>
__global__ void __launch_bounds__((CONFIG::CONSUMERS + 1) * WARPGROUP, 1) wgmma_quantized(
    const __grid_constant__ WgmmaQuantizedParams<typename CONFIG::OPERATION, CONFIG::STAGE_EPILOGUE> params) {
    using KERNEL = WgmmaQuantized<CONFIG>;
    using OPERATION = typename CONFIG::OPERATION;
    using EPILOGUE = typename KERNEL::EPILOGUE;
    using PIPELINE = typename KERNEL::PIPELINE;
    constexpr int CONSUMERS = KERNEL::CONSUMERS;
    extern __shared__ __align__(1024) unsigned char memory[];
    GemmParams<OPERATION> gemm = params.gemm.values();
    if constexpr (!CONFIG::READS_C) gemm.beta = 0;
    const unsigned outputs = shared_address(memory) + CONFIG::STAGES * (KERNEL::B_OFFSET + KERNEL::B::BYTES);
    const PIPELINE pipeline{shared_address(memory), outputs + CONSUMERS * KERNEL::EPILOGUE_BYTES};
    const auto epilogue_pipeline = [&](int consumer) {
        return typename EPILOGUE::PIPELINE{
            outputs + consumer * KERNEL::EPILOGUE_BYTES,
            pipeline.barriers + PIPELINE::BARRIER_BYTES + consumer * EPILOGUE::PIPELINE::BARRIER_BYTES};
    };
    typename PIPELINE::STATE state;
    if (threadIdx.x == 0) {
        prefetch_tensormap(params.map_b);
        if (CONFIG::STORE_BY_TMA) prefetch_tensormap(params.map_d);
        // Codes are loaded by each warp for itself, and so each warp releases a stage.
        pipeline.init(CONSUMERS * WARPGROUP / 32);
        if constexpr (CONFIG::STAGE_EPILOGUE)
            for (int consumer = 0; consumer < CONSUMERS; ++consumer) epilogue_pipeline(consumer).init(1);
    }
    __syncthreads();
    typename KERNEL::SCHEDULER scheduler(gemm.m, gemm.n, gemm.k, params.stream_k_tiles, 0);
    WorkTile work;
    bool more = scheduler.next(work);
    const auto* weights = reinterpret_cast<const unsigned char*>(gemm.a);
    // While the launch before this one ends, the first weights are on their way into L2: few, for those of all CTAs
    // arrive together.
    if (threadIdx.x == 0 && more)
        for (int i = 0; i < min(work.k_tiles, 2); ++i)
            cp_async_bulk_prefetch_l2(KERNEL::blocks(weights, params.row_blocks, work, work.first_k_tile + i),
                                      KERNEL::WEIGHT_BYTES);
    griddepcontrol_wait();

    const int group = warpgroup_index();
    if (group == 0) {
        if constexpr (CONSUMERS == 2) setmaxnreg_dec<KERNEL::PRODUCER_REGISTERS>();
        if (elect_one_of_warp(0)) {
            for (; more; more = scheduler.next(work))
                for (int k_tile = work.first_k_tile; k_tile < work.first_k_tile + work.k_tiles; ++k_tile) {
                    pipeline.producer_acquire(state);
                    KERNEL::load(pipeline.stage_address(state.stage), pipeline.full_barrier(state.stage),
                                 KERNEL::blocks(weights, params.row_blocks, work, k_tile), params.map_b, work, k_tile);
                    state.advance();
                }
            griddepcontrol_launch_dependents();
        }
    } else {
        if constexpr (CONSUMERS == 2) setmaxnreg_inc<KERNEL::CONSUMER_REGISTERS>();
        const int consumer = group - 1, first_row = consumer * KERNEL::ROWS;
        typename KERNEL::ACCUMULATORS accumulators;
        EPILOGUE epilogue{gemm, params.map_d, epilogue_pipeline(consumer), group, 0, 0, params.epilogue_maps()};
        const auto release = [&](int stage, bool was_read) {
            __syncwarp();
            mbarrier_arrive_if(pipeline.empty_barrier(stage), was_read && threadIdx.x % 32 == 0);
        };
        for (; more; more = scheduler.next(work)) {
            if constexpr (!CONFIG::STREAM_K)
                epilogue.begin_staging(work.row + first_row, work.column,
                                       KERNEL::M64_BLOCKS * EPILOGUE::SUBTILES::COUNT);
            // Otherwise the wgmmas seem to depend on the tile before, and the compiler serialises them.
            accumulators.zero();
            accumulators.fence_operands();
            for (int k_tile = 0; k_tile < work.k_tiles; ++k_tile) {
                pipeline.consumer_wait(state);
                const unsigned stage = pipeline.stage_address(state.stage);
                typename KERNEL::Blocks blocks(stage + consumer * KERNEL::M64_BLOCKS * KERNEL::BLOCK::BYTES);
                const auto release_previous = [&] { release(state.previous_stage(), k_tile > 0); };
                if (blocks.have_small_scales) {
                    KERNEL::template multiply<true>(accumulators, stage, blocks, release_previous);
                } else {
                    KERNEL::template multiply<false>(accumulators, stage, blocks, release_previous);
                }
                state.advance();
            }
            wgmma_wait_group<0>();
            accumulators.fence_operands();
            release(state.previous_stage(), true);
            if constexpr (CONFIG::SPLITS_K) {
                finish_split_k_tile<KERNEL>(accumulators, gemm, scheduler,
                                            {params.partial_accumulators, params.flags, params.stream_k_tiles}, 0,
                                            consumer, work.row + first_row, work.column);
                break;  // a CTA has one split of one tile
            }
            if constexpr (CONFIG::STREAM_K)
                if (!complete_stream_k_tile(accumulators, scheduler, work,
                                            {params.partial_accumulators, params.flags, group},
                                            [&](int cta) { return cta * CONSUMERS + consumer; }))
                    continue;
            epilogue.template store_all<!CONFIG::STREAM_K>(accumulators, work.row + first_row, work.column);
        }
        epilogue.finish();
    }
}

}  // namespace warptile
