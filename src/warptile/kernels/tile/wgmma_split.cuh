// Tiles whose depth is split evenly: all blocks of a tile add up and finish a part of it each.
#pragma once

#include "tile/wgmma_partial.cuh"
#include "tile/wgmma_store.cuh"

namespace warptile {

// Every block writes its sums, waits until all have, and takes its slice of everybody's: the time is that of one block's
// sums, however many blocks there are. One block that adds all others' (`PartialSums::add_to`) takes that time for each of
// them; atomic additions to D would come in any order; a cluster's shared memory reaches eight blocks.
// `split` is this block's number of the `splits` of its tile, whose places follow `first` `stride` apart; all of them
// count at `counter`, which is zero when a launch begins and when it ends.
template <typename OPERATION, typename ACCUMULATORS, bool PAIRS>
struct SplitSums {
    using REGISTER = typename ACCUMULATORS::INSTRUCTION::REGISTER;
    using PARTIAL = PartialSums<ACCUMULATORS>;
    static constexpr int PACKETS = PARTIAL::WORDS / 4 * WARPGROUP;  // of a place
    const Gemm<OPERATION>& gemm;
    PARTIAL partial;
    unsigned* counter;
    int first, stride, split, splits;
    int row, column;  // of D, where this warpgroup's part of the tile begins

    __device__ __forceinline__ void finish(const ACCUMULATORS& sums) const {
        partial.write(first + split * stride, sums);
        if (threadIdx.x % WARPGROUP == 0) {
            arrive_at_counter(counter, splits, splits);
            wait_for_counter(counter, splits);
            leave_counter(counter, splits, splits);
        }
        named_barrier<WARPGROUP>(partial.barrier);
        const int begin = PACKETS * split / splits, end = PACKETS * (split + 1) / splits;
        if (end - begin > WARPGROUP) {
            add<4, 4>(begin, end, 1);
        } else {
            // Lanes that would have no packet help others: each adds a run of the splits.
            int helpers = 1;
            while (helpers < 32 && 2 * helpers <= splits && 2 * helpers * (end - begin) <= WARPGROUP) helpers *= 2;
            add<1, 12>(begin, end, helpers);
        }
    }

private:
    // Packets from `begin` to `end`, MANY of a thread at a time, each the sum over all splits: of runs of neighbouring ones,
    // one run a lane, and then of the runs. TOGETHER splits are on their way at a time.
    template <int MANY, int TOGETHER>
    __device__ __forceinline__ void add(int begin, int end, int helpers) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32, lanes = 32 / helpers;
        const int helper = lane / lanes, stop = splits * (helper + 1) / helpers, step = WARPGROUP / helpers;
        // All lanes go the same way round: they exchange sums.
        for (int all = begin; all < end; all += MANY * step) {
            const int packet = all + warp * lanes + lane % lanes;
            REGISTER sums[MANY][4] = {};
            for (int from = splits * helper / helpers; from < stop; from += TOGETHER) {
                uint4 found[TOGETHER][MANY] = {};  // zeros where there are no more: without them the registers seem to be in use
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i)
#pragma unroll
                    for (int j = 0; j < MANY; ++j)
                        if (from + i < stop && packet + j * step < end)
                            found[i][j] = partial.packets(first + (from + i) * stride)[packet + j * step];
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i)
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

    // Finishes the sums of a packet, which were four registers of one thread.
    __device__ __forceinline__ void store(int packet, const REGISTER (&sums)[4]) const {
        const int thread = packet % WARPGROUP, i = packet / WARPGROUP * 4;
        constexpr int EACH = 4 / sizeof(typename OPERATION::SUM), TOGETHER = 2 / EACH;  // sums of a register, registers of a pair
#pragma unroll
        for (int j = 0; j < 4; j += TOGETHER) {
            const int block = (i + j) / ACCUMULATORS::REGISTERS, number = (i + j) % ACCUMULATORS::REGISTERS / TOGETHER;
            const int r = row + 64 * block + ACCUMULATORS::row_of(16 * (thread / 32) + 8 * (number % 2) + thread % 32 / 4);
            const int c = column + 8 * (number / 2) + thread % 4 * 2;
            const auto* pair = reinterpret_cast<const typename OPERATION::SUM*>(&sums[j]);
            store_pair<PAIRS>(pair[0], pair[1], gemm, r, c);
        }
    }
};

}  // namespace warptile
