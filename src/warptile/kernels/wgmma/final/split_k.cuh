// Split-K through global memory: the CTAs of a tile reduce their partial accumulators together, and finish a part each.
#pragma once

#include "tile/wgmma_direct_epilogue.cuh"
#include "tile/partial_accumulators.cuh"

namespace warptile {

// Every CTA writes its accumulators, waits until all of the tile's have, and finishes its slice of the sum. That takes
// the time of one CTA's accumulators, however many splits there are. (One CTA that adds all others' takes that time for
// each of them; atomic additions to D come in any order; distributed shared memory reaches the CTAs of one cluster.)
// `split` is this CTA's number of the `splits` of its tile; their slots are `first`, `first` + `stride` and so on. All
// of them count at `counter`, which is zero when a launch begins and when it ends.
template <typename OPERATION, typename ACCUMULATORS, bool PAIRS>
struct SplitKReduction {
    using REGISTER = typename ACCUMULATORS::INSTRUCTION::REGISTER;
    using PARTIAL = PartialAccumulators<ACCUMULATORS>;
    static constexpr int PACKETS = PARTIAL::WORDS / 4 * WARPGROUP;  // of a slot
    const GemmParams<OPERATION>& gemm;
    PARTIAL partial;
    unsigned* counter;
    int first, stride, split, splits;
    int row, column;  // where this warpgroup's part of the tile begins in D

    __device__ __forceinline__ void finish(const ACCUMULATORS& accumulators) const {
        partial.write(first + split * stride, accumulators);
        if (threadIdx.x % WARPGROUP == 0) {
            arrive_at_counter(counter, splits, splits);
            wait_for_counter(counter, splits);
            leave_counter(counter, splits, splits);
        }
        bar_sync<WARPGROUP>(partial.barrier);
        const int begin = PACKETS * split / splits, end = PACKETS * (split + 1) / splits;
        if (end - begin > WARPGROUP) {
            reduce<4, 4>(begin, end, 1);
        } else {
            // There are fewer packets than lanes: several lanes share a packet, and each adds some of the splits.
            int helpers = 1;
            while (helpers < 32 && 2 * helpers <= splits && 2 * helpers * (end - begin) <= WARPGROUP) helpers *= 2;
            reduce<1, 12>(begin, end, helpers);
        }
    }

  private:
    // Reduces packets [begin, end) over all splits, MANY packets of a thread at a time; each of `helpers` lanes adds a
    // run of neighbouring splits, then the runs are added. IN_FLIGHT splits are loaded at a time.
    template <int MANY, int IN_FLIGHT>
    __device__ __forceinline__ void reduce(int begin, int end, int helpers) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32, lanes = 32 / helpers;
        const int helper = lane / lanes, stop = splits * (helper + 1) / helpers, step = WARPGROUP / helpers;
        // All lanes take part in every iteration, because they exchange sums by shuffles.
        for (int all = begin; all < end; all += MANY * step) {
            const int packet = all + warp * lanes + lane % lanes;
            REGISTER sums[MANY][4] = {};
            for (int from = splits * helper / helpers; from < stop; from += IN_FLIGHT) {
                // Initialised, though only what is loaded matters: otherwise these registers seem to be live before the
                // loop.
                uint4 found[IN_FLIGHT][MANY] = {};
#pragma unroll
                for (int i = 0; i < IN_FLIGHT; ++i)
#pragma unroll
                    for (int j = 0; j < MANY; ++j)
                        if (from + i < stop && packet + j * step < end)
                            found[i][j] = partial.packets(first + (from + i) * stride)[packet + j * step];
#pragma unroll
                for (int i = 0; i < IN_FLIGHT; ++i)
#pragma unroll
                    for (int j = 0; j < MANY; ++j) {
                        const unsigned words[4] = {found[i][j].x, found[i][j].y, found[i][j].z, found[i][j].w};
#pragma unroll
                        for (int word = 0; word < 4; ++word)
                            ACCUMULATORS::add(sums[j][word], *reinterpret_cast<const REGISTER*>(&words[word]));
                    }
            }
            for (int apart = lanes; apart < 32; apart *= 2)
#pragma unroll
                for (int j = 0; j < MANY; ++j)
#pragma unroll
                    for (int word = 0; word < 4; ++word)
                        ACCUMULATORS::add(sums[j][word], __shfl_xor_sync(0xffffffff, sums[j][word], apart));
#pragma unroll
            for (int j = 0; j < MANY; ++j)
                if (helper == 0 && packet + j * step < end) store(packet + j * step, sums[j]);
        }
    }

    // Stores a packet's sums, which were four registers of one thread.
    __device__ __forceinline__ void store(int packet, const REGISTER (&sums)[4]) const {
        const int thread = packet % WARPGROUP, i = packet / WARPGROUP * 4;
        constexpr int PER_REGISTER = 4 / sizeof(typename OPERATION::ACC_ELEMENT), REGISTERS_OF_PAIR = 2 / PER_REGISTER;
#pragma unroll
        for (int j = 0; j < 4; j += REGISTERS_OF_PAIR) {
            const int m64 = (i + j) / ACCUMULATORS::REGISTERS;
            const int number = (i + j) % ACCUMULATORS::REGISTERS / REGISTERS_OF_PAIR;
            const int r =
                row + 64 * m64 + ACCUMULATORS::row_of(16 * (thread / 32) + 8 * (number % 2) + thread % 32 / 4);
            const int c = column + 8 * (number / 2) + thread % 4 * 2;
            const auto* pair = reinterpret_cast<const typename OPERATION::ACC_ELEMENT*>(&sums[j]);
            store_pair<PAIRS>(pair[0], pair[1], gemm, r, c);
        }
    }
};

// Finishes this CTA's slice of a work tile of `accumulators`.
template <typename KERNEL>
__device__ __forceinline__ void finish_split_k_tile(const typename KERNEL::ACCUMULATORS& accumulators,
                                                    const GemmParams<typename KERNEL::OPERATION>& gemm,
                                                    const typename KERNEL::SCHEDULER& scheduler,
                                                    const typename KERNEL::Workspace& workspace, int rank, int consumer,
                                                    int row, int column) {
    using OPERATION = typename KERNEL::OPERATION;
    constexpr int CLUSTER = KERNEL::CLUSTER, CONSUMERS = KERNEL::CONSUMERS;
    constexpr bool PAIRS = KERNEL::STORE_WIDTH % 2 == 0 && !OPERATION::D_COLUMN_MAJOR;
    const int splits = scheduler.clusters / workspace.stream_k_tiles, tile = scheduler.cluster / splits;
    SplitKReduction<OPERATION, typename KERNEL::ACCUMULATORS, PAIRS>{
        gemm,
        {workspace.accumulators, workspace.flags, consumer + 1},
        workspace.flags + (tile * CLUSTER + rank) * CONSUMERS + consumer,
        (tile * splits * CLUSTER + rank) * CONSUMERS + consumer,
        CLUSTER * CONSUMERS,
        scheduler.cluster % splits,
        splits,
        row,
        column}
        .finish(accumulators);
}

}  // namespace warptile
