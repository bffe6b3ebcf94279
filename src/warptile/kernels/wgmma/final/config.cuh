// The configuration of wgmma-final, and the types and constants that follow from it.
#pragma once

#include "ptx/cluster.cuh"
#include "tile/tile_scheduler.cuh"
#include "tile/two_level_accumulation.cuh"
#include "tile/wgmma_held_subtiles.cuh"

namespace warptile {

// What a `Config` may set; by default everything is off, and one of each.
struct WgmmaFinalDefaults {
    static constexpr int STAGES = 1, CONSUMERS = 1, GROUP = 1;
    // Two warpgroups own a tile each: one runs its epilogue during the other's mainloop. Else CONSUMERS warpgroups
    // share one tile (cooperative): its rows, where each gets whole blocks of 64 of them, else its columns.
    static constexpr bool PINGPONG = false;
    // CTAs of a cluster along M and N. CLUSTER_K: CTAs of it that have the same tile, each a part of its K.
    static constexpr int CLUSTER_M = 1, CLUSTER_N = 1, CLUSTER_K = 1;
    // Matrices of the batch that are residue classes of the rows of one D.
    static constexpr int RESIDUE_CLASSES = 1;
    static constexpr bool RASTER_ALONG_N = false, OVERLAP_EPILOGUE = false;
    // CTAs share K of the last tiles (stream-K), or of each tile (split-K).
    static constexpr bool STREAM_K = false, SPLIT_K = false;
    // Several matrices in one launch, all of which may use the same A or B.
    static constexpr bool BATCHED = false, BROADCAST_A = false, BROADCAST_B = false;
    // Each byte of A, or of B, is loaded once in the launch: L2 need not keep it.
    static constexpr bool EVICT_FIRST_A = false, EVICT_FIRST_B = false;
    // Rows of A are not aligned to 16 bytes: A goes through registers.
    static constexpr bool UNALIGNED_A = false;
    // Rows of A arrive from other GPUs while the kernel runs: the producer waits for them, shard by shard.
    static constexpr bool GATHERED_A = false;
    // Warps beside the producer repack misaligned operands, while the mainloop consumes what they have repacked.
    static constexpr bool FUSED_REPACK = false;
    // beta may be other than zero, and C is then read. Code for that is most of an epilogue, and of the time that a
    // kernel takes to compile.
    static constexpr bool READS_C = false;
    // TMA stores D; else registers do, at most STORE_WIDTH elements at a time. STAGE_EPILOGUE: it also loads operands
    // of an epilogue, and stores a further output, that are laid out as D is.
    static constexpr bool STORE_BY_TMA = false, STAGE_EPILOGUE = false;
    static constexpr int STORE_WIDTH = 1;
};

// A configuration with what follows from it alone.
template <typename CHOSEN>
struct WgmmaConfig : CHOSEN {
    using CHOSEN::BATCHED, CHOSEN::BROADCAST_B, CHOSEN::FUSED_REPACK, CHOSEN::GATHERED_A, CHOSEN::RASTER_ALONG_N,
        CHOSEN::OVERLAP_EPILOGUE, CHOSEN::RESIDUE_CLASSES;
    using CHOSEN::CLUSTER_K, CHOSEN::CLUSTER_M, CHOSEN::CLUSTER_N, CHOSEN::CONSUMERS, CHOSEN::PINGPONG;
    using CHOSEN::SPLIT_K, CHOSEN::STREAM_K, CHOSEN::UNALIGNED_A;
    static constexpr int CLUSTER = CLUSTER_M * CLUSTER_N;
    static constexpr bool PARTIAL_TILES = STREAM_K || SPLIT_K;
    static constexpr int THREADS = WARPGROUP * (CONSUMERS + 1);
    // Multicast masks of CTA 0: the CTAs of the cluster that need the same columns of B, which are neighbours, and the
    // same rows of A, which are CLUSTER_M apart: one bit for each CLUSTER_M.
    static constexpr unsigned MASK_B = (1 << CLUSTER_M) - 1, MASK_A = ((1 << CLUSTER) - 1) / MASK_B;
    static_assert(CLUSTER <= 8, "a cluster has at most eight CTAs");
    static_assert(!PINGPONG || CONSUMERS == 2, "two warpgroups alternate");
    static_assert(!PINGPONG || !PARTIAL_TILES, "stream-K and split-K share cooperative tiles");
    static_assert(!STREAM_K || !SPLIT_K, "stream-K or split-K, not both");
    static_assert(CLUSTER_K == 1 || SPLIT_K, "CTAs of a cluster share K of a split tile");
    static_assert(!OVERLAP_EPILOGUE || (!PINGPONG && !PARTIAL_TILES), "whole, cooperative tiles alone");
    static_assert(RESIDUE_CLASSES == 1 || (BATCHED && BROADCAST_B && !PARTIAL_TILES && !OVERLAP_EPILOGUE),
                  "residue classes share B, a tile each");
    static_assert(!FUSED_REPACK || (OVERLAP_EPILOGUE && CONSUMERS == 2 && !BATCHED && !UNALIGNED_A),
                  "repacking goes with the overlapped epilogue");
    static_assert(!UNALIGNED_A || (!PINGPONG && CLUSTER == 1 && !OVERLAP_EPILOGUE && !STREAM_K && !BATCHED),
                  "an unaligned A goes with the simplest schedule, or with split-K");
    static_assert(!GATHERED_A || !(RASTER_ALONG_N || PARTIAL_TILES || BATCHED || UNALIGNED_A || FUSED_REPACK),
                  "shards are rows of one aligned A, in whole tiles that come row by row");
    // Registers of a thread after setmaxnreg, with two consumers: of the producer's warpgroup and of a consumer,
    static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
    // with store warps in the producer's warpgroup,
    static constexpr int STORE_WARP_REGISTERS = 56, CONSUMER_REGISTERS_WITH_STORE_WARPS = 224;
    // with repack warps there,
    static constexpr int REPACK_WARP_REGISTERS = 72, CONSUMER_REGISTERS_WITH_REPACK_WARPS = 216;
    // and with a stream-K or split-K producer, or one of a cluster, which keep more state, if a thread has at most
    // FEW_ACCUMULATORS of them.
    static constexpr int LARGE_PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS_BESIDE = 232, FEW_ACCUMULATORS = 160;
    // Most registers of a consumer for accumulators of both levels, and factors, if the first level has two sets.
    static constexpr int MOST_WITH_TWO_SETS = 216;
};

// What follows from a configuration and its types.
template <typename CHOSEN>
struct WgmmaFinal {
    using OPERATION = typename CHOSEN::OPERATION;
    using TILE = typename CHOSEN::TILE;
    using CONFIG = WgmmaConfig<CHOSEN>;
    static constexpr bool STORE_BY_TMA = CONFIG::STORE_BY_TMA, IS_PINGPONG = CONFIG::PINGPONG;
    static constexpr int STORE_WIDTH = CONFIG::STORE_WIDTH;
    static constexpr int CONSUMERS = CONFIG::CONSUMERS, CLUSTER = CONFIG::CLUSTER, CLUSTER_M = CONFIG::CLUSTER_M;
    static constexpr int CLUSTER_N = CONFIG::CLUSTER_N, CLUSTER_K = CONFIG::CLUSTER_K;
    static constexpr bool IN_CLUSTER = CLUSTER * CLUSTER_K > 1;
    // The first work tile is found before the previous launch has ended; in a cluster the producer has no registers for
    // it.
    static constexpr bool EARLY = !IN_CLUSTER;

    static constexpr int CONSUMERS_OF_TILE = IS_PINGPONG ? 1 : CONSUMERS;
    static constexpr bool BY_COLUMNS = TILE::BM / 64 % CONSUMERS_OF_TILE != 0;
    // What a warpgroup computes of a tile.
    using PART = WgmmaTile<TILE::BM / (BY_COLUMNS ? 1 : CONSUMERS_OF_TILE),
                           TILE::BN / (BY_COLUMNS ? CONSUMERS_OF_TILE : 1), TILE::BK>;
    static constexpr int M64_BLOCKS = PART::BM / 64;
    static_assert(!BY_COLUMNS || OPERATION::B_COLUMN_MAJOR || PART::BN % 64 == 0,
                  "warpgroups that share the columns of an N-major B have whole panels of it");
    static_assert(!BY_COLUMNS || !CONFIG::UNALIGNED_A, "fragments of an unaligned A are loaded once");

    // The pipeline. Loads of an unaligned A from a stage are each warp's own, and so are its arrivals.
    using STAGE = WgmmaStage<OPERATION, TILE, CONFIG::UNALIGNED_A>;
    using PIPELINE = Pipeline<CONFIG::STAGES, STAGE::BYTES>;
    static constexpr int ARRIVALS_OF_WARPGROUP = CONFIG::UNALIGNED_A ? WARPGROUP / 32 : 1;
    static constexpr int CTAS_OF_STAGE = CLUSTER_M + CLUSTER_N - 1;  // that share A or B with this one, and this one
    static constexpr int CONSUMER_ARRIVALS = CONSUMERS_OF_TILE * CTAS_OF_STAGE * ARRIVALS_OF_WARPGROUP;

    using SCHEDULER =
        TileScheduler<TILE, CLUSTER_M, CLUSTER_N, CONFIG::GROUP, CONFIG::RASTER_ALONG_N, CONFIG::BATCHED,
                      CONFIG::RESIDUE_CLASSES, CONFIG::RESIDUE_CLASSES == 1 ? 1 : 16 / sizeof(typename OPERATION::OUT),
                      CONFIG::GATHERED_A, CONFIG::SPLIT_K && CLUSTER * CLUSTER_K == 1>;

    // The mainloop.
    using ACCUMULATORS = WgmmaAccumulators<OPERATION, TILE, M64_BLOCKS, CONFIG::UNALIGNED_A, PART::BN>;
    static constexpr bool BLOCK_SCALED = EpilogueOf<OPERATION>::type::BLOCK_SCALED;
    static_assert(!BLOCK_SCALED || OPERATION::PROMOTED, "scales of blocks are applied when sums are promoted");
    using FACTORS = typename FactorsOf<typename EpilogueOf<OPERATION>::type, PART::BN, M64_BLOCKS>::type;
    // Two-level accumulation has two sets of registers where they fit, so that wgmmas run while sums are promoted.
    static constexpr bool ALTERNATES =
        OPERATION::PROMOTED && TILE::BK == PROMOTION_INTERVAL && CONSUMERS == 2 && !CONFIG::OVERLAP_EPILOGUE &&
        !CONFIG::PARTIAL_TILES &&
        3 * M64_BLOCKS * ACCUMULATORS::REGISTERS + FACTORS::REGISTERS <= CONFIG::MOST_WITH_TWO_SETS;
    using TWO_LEVEL = TwoLevelAccumulation<OPERATION, TILE, M64_BLOCKS, PART::BN, ALTERNATES ? 2 : 1>;
    static constexpr int ACCUMULATOR_REGISTERS =
        M64_BLOCKS * ACCUMULATORS::REGISTERS * (OPERATION::PROMOTED ? 1 + TWO_LEVEL::PARTS * TWO_LEVEL::SETS : 1);

    static constexpr bool EPILOGUE_STAGED = CONFIG::STAGE_EPILOGUE;
    // The epilogue: of a warpgroup's part of a tile, or with CLUSTER_K of this CTA's columns of it.
    using STORED_TILE = WgmmaTile<PART::BM, PART::BN / CLUSTER_K, TILE::BK>;
    using EPILOGUE =
        WgmmaEpilogue<OPERATION, STORED_TILE, STORE_BY_TMA, STORE_WIDTH, CONFIG::BATCHED, CONFIG::UNALIGNED_A,
                      CONFIG::RESIDUE_CLASSES, CONFIG::OVERLAP_EPILOGUE, false, EPILOGUE_STAGED>;
    static constexpr int SUBTILES = M64_BLOCKS * EPILOGUE::SUBTILES::COUNT;  // of a warpgroup

    // Overlapped epilogue: the last HELD subtiles of a finished tile, as many as fit into registers beside the next
    // tile's accumulators, are stored during the next mainloop; the first ones at once.
    static constexpr int HELD = held_subtiles<SUBTILES, EPILOGUE::SUBTILES::WORDS, ACCUMULATOR_REGISTERS>();
    static constexpr int AT_ONCE = SUBTILES - HELD;
    static_assert(!CONFIG::OVERLAP_EPILOGUE || HELD > 0, "at least one finished subtile fits beside the next tile");
    static_assert(!CONFIG::OVERLAP_EPILOGUE || AT_ONCE == 0 || EPILOGUE::SUBTILES::DOWN == 1,
                  "a thread has a part of each subtile");

    // Warps of the producer's warpgroup with work of their own. Store warps store subtiles that TMA cannot, one for
    // each consumer, which goes on multiplying; repack warps repack misaligned operands.
    static constexpr int STORE_WARPS = CONFIG::OVERLAP_EPILOGUE && !STORE_BY_TMA ? CONSUMERS : 0;
    static constexpr int REPACK_WARPS = CONFIG::FUSED_REPACK ? WARPGROUP / 32 - 1 : 0;
    static_assert(REPACK_WARPS == 0 || STORE_WARPS == 0, "the same warps cannot do both");

    static constexpr bool LARGE_PRODUCER = (CONFIG::PARTIAL_TILES || (CLUSTER > 1 && !CONFIG::OVERLAP_EPILOGUE)) &&
                                           ACCUMULATOR_REGISTERS <= CONFIG::FEW_ACCUMULATORS;

    // Of tiles at the ends of A and B only what is inside is loaded. Else TMA fills them up with zeros: in clusters
    // whose producer has few registers, and columns of residue classes, whose tiles need not begin inside.
    static constexpr bool LOADS_PARTS = CLUSTER == 1 || CONSUMERS == 1 || LARGE_PRODUCER;
    static constexpr bool PART_OF_A = LOADS_PARTS && !CONFIG::UNALIGNED_A;
    static constexpr bool PART_OF_B = LOADS_PARTS && CONFIG::RESIDUE_CLASSES == 1;

    static constexpr int PRODUCER_REGISTERS = STORE_WARPS            ? CONFIG::STORE_WARP_REGISTERS
                                              : CONFIG::FUSED_REPACK ? CONFIG::REPACK_WARP_REGISTERS
                                              : LARGE_PRODUCER       ? CONFIG::LARGE_PRODUCER_REGISTERS
                                                                     : CONFIG::PRODUCER_REGISTERS;
    static constexpr int CONSUMER_REGISTERS = STORE_WARPS            ? CONFIG::CONSUMER_REGISTERS_WITH_STORE_WARPS
                                              : CONFIG::FUSED_REPACK ? CONFIG::CONSUMER_REGISTERS_WITH_REPACK_WARPS
                                              : LARGE_PRODUCER       ? CONFIG::CONSUMER_REGISTERS_BESIDE
                                                                     : CONFIG::CONSUMER_REGISTERS;

    // Shared memory: stages, each consumer's epilogue buffers, barriers of the pipeline, of ping-pong's order, of
    // queues.
    struct SharedMemory {
        unsigned stages;

        __device__ __forceinline__ explicit SharedMemory(const unsigned char* memory)
            : stages(shared_address(memory)) {}

        __device__ __forceinline__ unsigned epilogue_buffers() const { return stages + CONFIG::STAGES * STAGE::BYTES; }
        __device__ __forceinline__ PIPELINE pipeline() const {
            return {stages, epilogue_buffers() + CONSUMERS * EPILOGUE::BYTES};
        }
        // Ping-pong: completes when it is this consumer's turn to issue wgmmas.
        __device__ __forceinline__ unsigned order_barrier(int consumer) const {
            return pipeline().barriers + PIPELINE::BARRIER_BYTES + consumer * MBARRIER_BYTES;
        }
        __device__ __forceinline__ typename EPILOGUE::PIPELINE epilogue(int consumer) const {
            return {epilogue_buffers() + consumer * EPILOGUE::BYTES,
                    order_barrier(CONSUMERS) + consumer * EPILOGUE::QUEUE_BYTES};
        }

        // One thread initialises all barriers.
        __device__ __forceinline__ void init() const {
            if (IS_PINGPONG)
                for (int consumer = 0; consumer < CONSUMERS; ++consumer) mbarrier_init(order_barrier(consumer), 1);
            if constexpr (STORE_WARPS > 0)
                for (int consumer = 0; consumer < CONSUMERS; ++consumer) epilogue(consumer).init(1, WARPGROUP / 32);
            if constexpr (EPILOGUE_STAGED)
                for (int consumer = 0; consumer < CONSUMERS; ++consumer) epilogue(consumer).init(1);
            pipeline().init(CONSUMER_ARRIVALS);
        }
    };

    // Where this CTA is in its cluster. CTAs that have the same part of K follow each other: `leader` is the rank of
    // the first of them, and this is the `rank`-th.
    struct ClusterPosition {
        int cta_rank, rank, leader;

        __device__ __forceinline__ ClusterPosition()
            : cta_rank(IN_CLUSTER ? cluster_ctarank() : 0), rank(cta_rank % CLUSTER), leader(cta_rank - rank) {}
        __device__ __forceinline__ int k_part() const { return cta_rank / CLUSTER; }
    };

    // A batch: of how many elements matrices of C and D are apart, and where the first ones begin.
    struct Batch {
        using EPILOGUE_OPERANDS = typename EpilogueOf<OPERATION>::type;
        static constexpr bool FUSED = EPILOGUE_OPERANDS::FUSED;
        const typename OPERATION::OUT* c;
        typename OPERATION::OUT* d;
        long long stride_c, stride_d;
        const EPILOGUE_OPERANDS* first;  // those of the first matrix
    };

    // Where CTAs leave partial accumulators for each other, and the flags or counters that go with them.
    struct Workspace {
        unsigned char* accumulators;
        unsigned* flags;
        int stream_k_tiles;
    };
};

// What the kernel takes: written by `WgmmaFinal.resolve` (rungs/wgmma/final.py), which knows the offset of each member.
template <typename CHOSEN>
struct WgmmaFinalParams : EpilogueMaps<typename CHOSEN::OPERATION, CHOSEN::STAGE_EPILOGUE> {
    using OPERATION = typename CHOSEN::OPERATION;

    GemmParams<OPERATION> gemm;
    // Of whole boxes; of an N-major B's last panel, where that is narrower; and of the box at the end of the matrix. Of
    // an unaligned A, map_a[r] is that of the rows whose number is r modulo 8.
    using STAGE = WgmmaStage<OPERATION, typename CHOSEN::TILE>;
    TensorMap map_b[STAGE::B::MAPS + 1], map_d, map_a[CHOSEN::UNALIGNED_A ? 8 : STAGE::A::MAPS + 1];
    unsigned char* partial_accumulators;
    unsigned* flags;
    int stream_k_tiles, batch;
    long long batch_stride_c, batch_stride_d;
    // With FUSED_REPACK gemm.a and gemm.b are the repacked operands, made from these (null: not repacked); pitches in
    // bytes.
    const char* source_a;
    long long source_pitch_a;
    const char* source_b;
    long long source_pitch_b;
    // With GATHERED_A `flags` has one for each shard of A, not zero when its rows have arrived; shard i has the rows
    // from i * shard_rows on. Those of `first_shard` are there first.
    int shard_rows, first_shard;
};

}  // namespace warptile
