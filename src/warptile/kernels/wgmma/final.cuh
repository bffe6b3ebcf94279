// wgmma-final: one kernel for every type, layout and schedule of Hopper's tensor cores; all sizes are tuned.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/dependent_launch.cuh"
#include "tile/wgmma_cluster_sums.cuh"
#include "tile/wgmma_copies.cuh"
#include "tile/wgmma_output.cuh"
#include "tile/wgmma_partial.cuh"
#include "tile/wgmma_ring.cuh"
#include "tile/wgmma_schedule.cuh"
#include "tile/wgmma_short_sums.cuh"
#include "tile/wgmma_split.cuh"

namespace warptile {

// How the warps of a block divide the work.
enum WgmmaMode {
    COOPERATIVE,  // CONSUMERS warpgroups own parts of the rows of one tile
    PINGPONG,     // two warpgroups own a tile each: one stores while the other multiplies
};

template <int STAGES_, int CONSUMERS_, int MODE_, int CLUSTER_M_, int CLUSTER_N_, int CLUSTER_K_, int GROUP_,
          int CLASSES_, bool ALONG_N_, bool OVERLAP_, bool STREAM_, bool SPLIT_, bool BATCHED_, bool SHARED_A_,
          bool SHARED_B_, bool ONCE_A_, bool ONCE_B_, bool ANY_START_, bool BESIDE_>
struct WgmmaConfig {
    static constexpr int STAGES = STAGES_, CONSUMERS = CONSUMERS_, MODE = MODE_;
    static constexpr int CLUSTER_M = CLUSTER_M_, CLUSTER_N = CLUSTER_N_, CLUSTER = CLUSTER_M * CLUSTER_N, GROUP = GROUP_;
    // So many times CLUSTER blocks of a cluster have the same tiles, each a part of their depth: all SPLITS of them, or one.
    static constexpr int CLUSTER_K = CLUSTER_K_;
    // So many matrices of the batch are classes of rows of one D.
    static constexpr int CLASSES = CLASSES_;
    static constexpr bool ALONG_N = ALONG_N_, OVERLAP = OVERLAP_;
    // Blocks share the depth of the last tiles, or of each tile.
    static constexpr bool STREAM = STREAM_, SPLIT = SPLIT_, PARTIAL = STREAM || SPLIT;
    // Several matrices in one launch, of which all may share A or B.
    static constexpr bool BATCHED = BATCHED_, SHARED_A = SHARED_A_, SHARED_B = SHARED_B_;
    // A is loaded once in the launch, or B: L2 need not keep it.
    static constexpr bool ONCE_A = ONCE_A_, ONCE_B = ONCE_B_;
    // Rows of A begin at any element: they go through registers.
    static constexpr bool ANY_START = ANY_START_;
    // Warps beside the producer copy operands that lie badly, while the products of what they have copied are computed.
    static constexpr bool BESIDE = BESIDE_;
    static constexpr int THREADS = WARPGROUP * (CONSUMERS + 1);
    // Bits of the blocks of a cluster that need the same rows of A as block 0 at the same depth, and the same columns of B.
    static constexpr unsigned ROW_OF_BLOCKS = CLUSTER_N == 1 ? 1 : 1 | 1 << CLUSTER_M, COLUMN_OF_BLOCKS = (1 << CLUSTER_M) - 1;
    static_assert(CLUSTER_N <= 2, "clusters are at most two blocks wide");
    static_assert(MODE != PINGPONG || CONSUMERS == 2, "two warpgroups take turns");
    static_assert(MODE != PINGPONG || !PARTIAL, "the depth of cooperative tiles is shared");
    static_assert(!STREAM || !SPLIT, "the depth is shared in one way");
    static_assert(CLUSTER_K == 1 || SPLIT, "blocks of a cluster share the depth of a split tile");
    static_assert(!OVERLAP || (MODE == COOPERATIVE && !PARTIAL), "OVERLAP goes with whole, cooperative tiles");
    static_assert(CLASSES == 1 || (BATCHED && SHARED_B && !PARTIAL && !OVERLAP), "classes of rows share B, a tile each");
    static_assert(!BESIDE || (OVERLAP && CONSUMERS == 2 && !BATCHED && !ANY_START), "copiers are beside overlapped stores");
    static_assert(!ANY_START || (MODE == COOPERATIVE && CLUSTER == 1 && !OVERLAP && !STREAM && !BATCHED),
                  "rows that begin at any element are one block's own, in the simplest schedule or with its depth split");
    // Of the registers of a multiprocessor, what the producer's warpgroup, with storers and without, and two consumers get a
    // thread.
    static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
    static constexpr int STORER_REGISTERS = 56, CONSUMER_REGISTERS_BESIDE = 224;
    static constexpr int COPIER_REGISTERS = 72, CONSUMER_REGISTERS_BESIDE_COPIERS = 216;
    // Where blocks share the depth of tiles of at most FEW_SUMS sums a thread: the producer has more to keep in mind.
    static constexpr int PRODUCER_REGISTERS_PARTIAL = 40, CONSUMER_REGISTERS_PARTIAL = 232, FEW_SUMS = 160;
    // Of a consumer's thread with OVERLAP, what sums and the part of a finished tile that waits have at most.
    static constexpr int HELD_REGISTERS = 192;
};

// With BESIDE A and B are the copies, of `source_a` and `source_b` (null: no copy), whose pitches are in bytes.
// `other_rows` are maps of rows of A whose remainder by eight is 1 to 7, with ANY_START; `map_a` is of the first.
template <typename OPERATION, typename TILE, typename CONFIG, bool STORE_BY_TMA, int STORE_WIDTH, typename... MAPS>
__global__ void __launch_bounds__(CONFIG::THREADS, 1)
    wgmma_final(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
                const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
                long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
                typename OPERATION::SCALE beta, const __grid_constant__ TensorMap map_a,
                const __grid_constant__ TensorMap map_b, const __grid_constant__ TensorMap map_d, int streamed,
                unsigned char* places, unsigned* flags, int batch, long long matrix_stride_c, long long matrix_stride_d,
                const char* source_a, const char* source_b, long long source_pitch_a, long long source_pitch_b,
                const __grid_constant__ MAPS... other_rows) {
    constexpr int CONSUMERS = CONFIG::CONSUMERS, CLUSTER = CONFIG::CLUSTER, CLUSTER_M = CONFIG::CLUSTER_M;
    constexpr int CLUSTER_K = CONFIG::CLUSTER_K;
    constexpr bool PINGPONG_MODE = CONFIG::MODE == PINGPONG;
    constexpr int TAKING = PINGPONG_MODE ? 1 : CONSUMERS;  // warpgroups that read a stage
    constexpr int BLOCKS = TILE::BM / 64 / TAKING;         // of 64 rows, of a warpgroup
    constexpr int READERS = CONFIG::ANY_START ? WARPGROUP / 32 : 1;  // of a stage, in a warpgroup: those who say that they have
    static_assert(TILE::BM % (64 * TAKING) == 0, "each warpgroup has whole blocks of 64 rows");
    using STAGE = WgmmaStage<OPERATION, TILE, CONFIG::ANY_START>;
    using RING = StageRing<CONFIG::STAGES, STAGE::BYTES>;
    using FINISHED = WgmmaTile<TILE::BM, TILE::BN / CLUSTER_K, TILE::BK>;  // what a block stores of a tile
    using OUTPUT = WgmmaOutput<OPERATION, FINISHED, STORE_BY_TMA, STORE_WIDTH, CONFIG::BATCHED, CONFIG::ANY_START,
                               CONFIG::CLASSES, CONFIG::OVERLAP>;
    using ACCUMULATORS = WgmmaAccumulators<OPERATION, TILE, BLOCKS, CONFIG::ANY_START>;
    constexpr int PANELS = BLOCKS * OUTPUT::PANELS::COUNT;  // of D, of a warpgroup
    // With OVERLAP as many panels as fit into registers beside the next tile's sums wait for its steps, the last ones.
    using SHORT_SUMS = ShortSums<OPERATION, TILE, BLOCKS>;
    constexpr int SUMS = BLOCKS * ACCUMULATORS::REGISTERS * (OPERATION::PROMOTED ? 1 + SHORT_SUMS::PARTS : 1);
    constexpr int FIT = SUMS < CONFIG::HELD_REGISTERS ? (CONFIG::HELD_REGISTERS - SUMS) / OUTPUT::PANELS::WORDS : 0;
    constexpr int HELD = FIT < PANELS ? FIT : PANELS, AT_ONCE = PANELS - HELD;
    static_assert(!CONFIG::OVERLAP || HELD > 0, "a part of a finished tile fits beside the next");
    static_assert(!CONFIG::OVERLAP || AT_ONCE == 0 || OUTPUT::PANELS::DOWN == 1, "a thread has a part of each panel");
    // Warps beside the producer that copy panels to D where TMA cannot, one for each consumer, which goes on multiplying.
    constexpr int STORERS = CONFIG::OVERLAP && !STORE_BY_TMA ? CONSUMERS : 0;
    using SCHEDULE =
        WgmmaSchedule<TILE, CLUSTER_M, CONFIG::CLUSTER_N, CONFIG::GROUP, CONFIG::ALONG_N, CONFIG::BATCHED, CONFIG::CLASSES,
                      CONFIG::CLASSES == 1 ? 1 : 16 / sizeof(typename OPERATION::OUT)>;
    extern __shared__ __align__(1024) unsigned char memory[];

    Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const unsigned stages = shared_address(memory), outputs = stages + CONFIG::STAGES * STAGE::BYTES;
    const RING ring{stages, outputs + CONSUMERS * OUTPUT::BYTES};
    const unsigned turns = ring.barriers + RING::BARRIER_BYTES;  // a barrier for each consumer's turn to multiply
    const auto buffers_of = [&](int consumer) -> typename OUTPUT::RING {
        return {outputs + consumer * OUTPUT::BYTES,
                turns + CONSUMERS * MBARRIER_BYTES + consumer * OUTPUT::HANDOVER_BYTES};
    };
    // Blocks of the same depth have ranks from `leader` on in their cluster, and this one is the `rank`-th of them.
    const int place = CLUSTER * CLUSTER_K > 1 ? cluster_rank() : 0, rank = place % CLUSTER, leader = place - rank;
    const int group = warpgroup();
    constexpr int NEIGHBOURS = CLUSTER_M + CONFIG::CLUSTER_N - 1;  // blocks of the same row or column of the cluster
    if (threadIdx.x == 0) {
        prefetch_tensor_map(map_a);
        (prefetch_tensor_map(other_rows), ...);
        prefetch_tensor_map(map_b);
        if (STORE_BY_TMA) prefetch_tensor_map(map_d);
        if (PINGPONG_MODE)
            for (int consumer = 0; consumer < CONSUMERS; ++consumer) mbarrier_init(turns + consumer * MBARRIER_BYTES, 1);
        if constexpr (STORERS > 0)
            for (int consumer = 0; consumer < CONSUMERS; ++consumer) buffers_of(consumer).init(1, WARPGROUP / 32);
        ring.init(TAKING * NEIGHBOURS * READERS);
    }
    if constexpr (CLUSTER * CLUSTER_K > 1) {
        cluster_barrier<true>();
    } else {
        __syncthreads();
    }
    constexpr bool PARTIAL_FEW = CONFIG::PARTIAL && SUMS <= CONFIG::FEW_SUMS;
    SCHEDULE schedule(m, n, gemm.k, CONFIG::PARTIAL ? streamed : 0, rank, CONFIG::BATCHED ? batch : 1,
                      static_cast<unsigned>(reinterpret_cast<unsigned long long>(d)) / sizeof(typename OPERATION::OUT),
                      static_cast<unsigned>(matrix_stride_d));
    const int whole_tiles = schedule.whole_tiles();
    Work work;
    // The first work is found while the launch before ends; in a cluster the producer has no registers to keep it in.
    constexpr bool EARLY = CLUSTER * CLUSTER_K == 1;
    const bool early = EARLY && schedule.next(work);
    const auto first = [&] { return EARLY ? early : schedule.next(work); };
    wait_for_previous_launch();
    typename RING::POSITION position;

    if (group == 0) {
        if constexpr (CONSUMERS == 2) registers_down<STORERS           ? CONFIG::STORER_REGISTERS
                                              : CONFIG::BESIDE ? CONFIG::COPIER_REGISTERS
                                              : PARTIAL_FEW ? CONFIG::PRODUCER_REGISTERS_PARTIAL
                                                            : CONFIG::PRODUCER_REGISTERS>();
        constexpr int UNIT_BYTES = sizeof(typename OPERATION::ELEMENT), COPIERS = CONFIG::BESIDE ? WARPGROUP / 32 - 1 : 0;
        static_assert(COPIERS == 0 || STORERS == 0, "copiers and storers are the same warps");
        const auto lines = [](const char* source, const void* target, long long pitch, long long target_pitch, int count) {
            return CopiedLines{source, static_cast<char*>(const_cast<void*>(target)), static_cast<unsigned>(pitch),
                               static_cast<unsigned>(target_pitch) * UNIT_BYTES, source ? count : 0};
        };
        const WgmmaCopies<SCHEDULE, TILE::BK * UNIT_BYTES, UNIT_BYTES, COPIERS> copies{
            m, n, lines(source_a, a, source_pitch_a, lda, m), lines(source_b, b, source_pitch_b, ldb, n), k * UNIT_BYTES, flags};
        if (threadIdx.x == 0) {
            const int beyond = gemm.k > 0 ? 0 : TILE::BK;  // no depth: one step of zeros, from outside the matrices
            int turn = 0;  // with copies beside: whole tiles that this block has taken
            for (bool more = first(); more; more = schedule.next(work)) {
                const bool copied_now = CONFIG::BESIDE && copies.has_slices(turn);
                for (int step = work.first; step < work.first + work.steps; ++step) {
                    if (copied_now && step % copies.STEPS == 0) copies.wait_for(turn * copies.slices() + step / copies.STEPS);
                    mbarrier_wait(ring.empty(position.stage), position.parity ^ 1);
                    const unsigned stage = ring.at(position.stage), full = ring.full(position.stage);
                    const int depth = step * TILE::BK + beyond;
                    mbarrier_arrive_expect(full, STAGE::BYTES);
                    const int matrix_a = CONFIG::SHARED_A ? 0 : work.matrix, matrix_b = CONFIG::SHARED_B ? 0 : work.matrix;
                    if constexpr (CONFIG::ANY_START) {
                        const TensorMap* const maps[] = {&map_a, &other_rows...};
                        STAGE::A::template load<CONFIG::ONCE_A>(stage, maps, work.row, depth, full);
                    } else if constexpr (CONFIG::CLUSTER_N > 1) {
                        STAGE::A::template load_share<CONFIG::CLUSTER_N, CONFIG::BATCHED>(
                            stage, map_a, work.row, depth, full, rank / CLUSTER_M,
                            CONFIG::ROW_OF_BLOCKS << (leader + rank % CLUSTER_M), matrix_a);
                    } else {
                        STAGE::A::template load<CONFIG::BATCHED, CONFIG::ONCE_A>(stage, map_a, work.row, depth, full, matrix_a);
                    }
                    if constexpr (CLUSTER_M > 1) {
                        STAGE::B::template load_share<CLUSTER_M, CONFIG::BATCHED>(
                            stage + STAGE::B_OFFSET, map_b, work.column, depth, full, rank % CLUSTER_M,
                            CONFIG::COLUMN_OF_BLOCKS << (leader + rank / CLUSTER_M * CLUSTER_M), matrix_b);
                    } else {
                        STAGE::B::template load<CONFIG::BATCHED, CONFIG::ONCE_B>(stage + STAGE::B_OFFSET, map_b, work.column, depth, full,
                                                                 matrix_b);
                    }
                    position.advance();
                }
                ++turn;
            }
            // Who has no tile in the last turn leaves its counters all the same.
            if constexpr (CONFIG::BESIDE)
                for (; turn < schedule.turns(); ++turn)
                    for (int slice = 0; copies.has_slices(turn) && slice < copies.slices(); ++slice)
                        copies.wait_for(turn * copies.slices() + slice);
        } else if (COPIERS > 0 && threadIdx.x >= 32) {
            copies.run(blockIdx.x * COPIERS + threadIdx.x / 32 - 1);
        } else if (STORERS > 0 && threadIdx.x / 32 >= 1 && threadIdx.x / 32 <= STORERS) {
            // All but what waits of the last tile, which consumers copy: they have nothing else to do then.
            OUTPUT output{gemm, map_d, buffers_of(threadIdx.x / 32 - 1), 0, 0, matrix_stride_d};
            for (int panels = PANELS * whole_tiles - HELD; panels > 0; --panels) output.take_over();
        }
        if constexpr (CLUSTER_K > 1) cluster_barrier<true>();  // consumers say that their sums can be read
    } else {
        if constexpr (CONSUMERS == 2)
            registers_up<STORERS           ? CONFIG::CONSUMER_REGISTERS_BESIDE
                         : CONFIG::BESIDE ? CONFIG::CONSUMER_REGISTERS_BESIDE_COPIERS
                         : PARTIAL_FEW ? CONFIG::CONSUMER_REGISTERS_PARTIAL
                                       : CONFIG::CONSUMER_REGISTERS>();
        const int consumer = group - 1, first_row = PINGPONG_MODE ? 0 : consumer * BLOCKS * 64;
        ACCUMULATORS accumulators;
        OUTPUT output{gemm, map_d, buffers_of(consumer), consumer + 1, 0, CONFIG::CLASSES > 1 ? 1 : matrix_stride_d};
        const auto take_matrix = [&] {
            if constexpr (CONFIG::CLASSES > 1) {
                output.matrix = work.matrix * static_cast<int>(matrix_stride_d);
            } else if constexpr (CONFIG::BATCHED) {
                gemm.c = c + work.matrix * matrix_stride_c;
                output.matrix = work.matrix;
            }
        };

        // Tells those who fill this stage, here and in neighbouring blocks, that this warpgroup has read it.
        const auto release = [&](int stage) {
            if constexpr (CONFIG::ANY_START) __syncwarp();
            const int thread = threadIdx.x % (WARPGROUP / READERS);
            if constexpr (CLUSTER == 1) {
                if (thread == 0) mbarrier_arrive(ring.empty(stage));
            } else if (thread < CLUSTER && (thread % CLUSTER_M == rank % CLUSTER_M || thread / CLUSTER_M == rank / CLUSTER_M)) {
                mbarrier_arrive_at(ring.empty(stage), leader + thread);
            }
        };

        // One step of depth in two parts: its products start, and the stage that was read before is given back. Between
        // them there is time for something else. At the `end` all products are over.
        SHORT_SUMS short_sums;
        const typename STAGE::A::Reader reader(gemm.a, gemm.lda);
        const auto start = [&](bool first) {
            // With STREAM the compiler does not see that all lanes are at the same stage, and moves every descriptor to a
            // uniform register on its own, between the products.
            const int stage = CONFIG::STREAM ? same_in_all_lanes(position.stage) : position.stage;
            mbarrier_wait(ring.full(position.stage), position.parity);
            if constexpr (OPERATION::PROMOTED) {
                short_sums.multiply(ring.at(stage), first_row);
            } else if constexpr (CONFIG::ANY_START) {
                accumulators.multiply(reader, ring.at(stage), first_row, !first);
            } else {
                accumulators.multiply(ring.at(stage), first_row, !first);
            }
        };
        const auto follow = [&](bool first) {
            if constexpr (OPERATION::PROMOTED) {
                short_sums.add_to(accumulators, [&] { release(position.stage); });
            } else {
                wgmma_wait_group<1>();
                if (!first) release(position.before());
            }
            position.advance();
        };
        const auto end = [&] {
            if constexpr (!OPERATION::PROMOTED) {
                wgmma_wait_group<0>();
                accumulators.pin_all();
                release(position.before());
            }
        };

        if constexpr (CONFIG::OVERLAP) {
            // A finished tile, packed, is stored between the products of the first steps of the next, as far as it can wait.
            Vector<typename OPERATION::OUT, 2> held[BLOCKS][TILE::BN / 8][2];
            int held_row = 0, held_column = 0;
            bool holding = false;
            const auto of_panel = [&](int panel) {
                return [&, block = panel / OUTPUT::PANELS::COUNT](int eight, int half) { return held[block][eight][half]; };
            };
            const auto finish = [&](int panel) {
                return [&, block = panel / OUTPUT::PANELS::COUNT](int eight, int half) {
                    return result(accumulators, gemm, block, eight, half, held_row, held_column);
                };
            };
            for (bool more = first(); more; more = schedule.next(work)) {
                if constexpr (OPERATION::PROMOTED) accumulators.zero();
                // The host sees to it that there are so many steps. A storer is slower than TMA: panels come to it further
                // apart.
                const int apart = STORERS > 0 ? work.steps / HELD : 1;
#pragma unroll
                for (int step = 0; step < HELD; ++step) {
                    start(step == 0);
                    if (holding) {
                        const int panel = AT_ONCE + step;
                        output.template leave<(STORERS > 0)>(panel, held_row, held_column, of_panel(panel));
                    }
                    follow(step == 0);
                    for (int further = 1; further < apart; ++further) {
                        start(false);
                        follow(false);
                    }
                }
                for (int step = HELD * apart; step < work.steps; ++step) {
                    start(false);
                    follow(false);
                }
                end();
                take_matrix();
                held_row = work.row + first_row;
                held_column = work.column;
                holding = true;
#pragma unroll
                for (int panel = 0; panel < AT_ONCE; ++panel)
                    output.template leave<(STORERS > 0)>(panel, held_row, held_column, finish(panel));
#pragma unroll
                for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
                    for (int eight = 0; eight < TILE::BN / 8; ++eight)
#pragma unroll
                        for (int half = 0; half < 2; ++half)
                            if (block * OUTPUT::PANELS::COUNT + eight / (OUTPUT::PANELS::COLUMNS / 8) >= AT_ONCE)
                                held[block][eight][half] =
                                    result(accumulators, gemm, block, eight, half, held_row, held_column);
            }
            if (holding) {
                if constexpr (STORERS > 0) output.take_back();
#pragma unroll
                for (int panel = AT_ONCE; panel < PANELS; ++panel)
                    output.store(panel, held_row, held_column, of_panel(panel));
            }
        } else {
            unsigned turn_parity = 0;
            int number = 0;
            for (bool more = first(); more; ++number, more = schedule.next(work)) {
                if constexpr (PINGPONG_MODE) {
                    if (number % 2 != consumer) {
                        position.advance(work.steps);
                        continue;
                    }
                    if (number > 0) {
                        mbarrier_wait(turns + consumer * MBARRIER_BYTES, turn_parity);
                        turn_parity ^= 1;
                    }
                }
                if constexpr (OPERATION::PROMOTED || CONFIG::PARTIAL) {
                    // Else the products seem to depend on what was done to the sums, and the compiler serialises them.
                    accumulators.zero();
                    accumulators.pin_all();
                }
                for (int step = 0; step < work.steps; ++step) {
                    start(step == 0);
                    follow(step == 0);
                }
                // All products are on their way: the other's may follow.
                if (PINGPONG_MODE && threadIdx.x % WARPGROUP == 0)
                    mbarrier_arrive(turns + (1 - consumer) * MBARRIER_BYTES);
                end();
                if constexpr (CONFIG::STREAM) {
                    using PARTIAL = PartialSums<ACCUMULATORS>;
                    const PARTIAL partials{places, flags, consumer + 1};
                    const auto place_of = [&](int team) { return (team * CLUSTER + rank) * CONSUMERS + consumer; };
                    if (work.first > 0) {
                        partials.put(place_of(schedule.team), accumulators);
                        continue;
                    }
                    if (work.steps < schedule.steps) {
                        // The rest of the depth is the teams' that follow, always added in the same order.
                        const int tile_end = schedule.at - work.steps + schedule.steps;
                        for (int team = schedule.team + 1; schedule.begin_of(team) < tile_end; ++team)
                            if (schedule.begin_of(team) < schedule.begin_of(team + 1))
                                partials.add_to(accumulators, place_of(team));
                    }
                }
                take_matrix();
                if constexpr (CLUSTER_K > 1) {
                    using SUMS = ClusterSums<ACCUMULATORS, CLUSTER_K, CONSUMERS>;
                    const int number = place / CLUSTER;
                    const SUMS sums{stages + consumer * SUMS::BYTES, rank, CLUSTER, number};
                    output.store_all(sums.add(accumulators), work.row + first_row, work.column + number * FINISHED::BN);
                    break;  // a block has a part of one tile
                } else if constexpr (CONFIG::SPLIT) {
                    if constexpr (CONFIG::BATCHED) gemm.d = d + work.matrix * matrix_stride_d;
                    const int splits = schedule.teams / streamed, tile = schedule.team / splits;
                    SplitSums<OPERATION, ACCUMULATORS, STORE_WIDTH % 2 == 0 && !OPERATION::D_COLUMN_MAJOR>{
                        gemm, {places, flags, consumer + 1}, flags + (tile * CLUSTER + rank) * CONSUMERS + consumer,
                        (tile * splits * CLUSTER + rank) * CONSUMERS + consumer, CLUSTER * CONSUMERS,
                        schedule.team % splits, splits, work.row + first_row, work.column}.finish(accumulators);
                    break;  // a block has a part of one tile
                }
                output.store_all(accumulators, work.row + first_row, work.column);
            }
        }
        allow_next_launch();
        output.finish();
    }
    if constexpr (CLUSTER * CLUSTER_K > 1) cluster_barrier<false>();
}

}  // namespace warptile
