// Partial accumulators, of a part of K, that one CTA hands to another through global memory.
#pragma once

#include "ptx/shared_memory.cuh"
#include "ptx/warpgroup.cuh"
#include "tile/global_barrier.cuh"

namespace warptile {

// A workspace with one slot for each warpgroup of each CTA, and a flag for each slot that says that it is full. All
// flags are zero when a launch begins and when it ends.
template <typename ACCUMULATORS>
struct PartialAccumulators {
    static constexpr int WORDS = ACCUMULATORS::M64_BLOCKS * ACCUMULATORS::REGISTERS, BYTES = WORDS * 4 * WARPGROUP;
    static_assert(WORDS % 4 == 0, "registers are stored in packets of four");
    unsigned char* slots;
    unsigned* flags;
    int barrier;  // this warpgroup's named barrier

    __device__ __forceinline__ uint4* packets(int slot) const {
        return reinterpret_cast<uint4*>(slots + static_cast<long long>(slot) * BYTES);
    }

    // This thread's first packet of a slot. Its others follow WARPGROUP packets apart: accesses are coalesced.
    __device__ __forceinline__ uint4* own_packets(int slot) const { return packets(slot) + threadIdx.x % WARPGROUP; }

    // Writes a slot; all of the warpgroup has done so when this returns.
    __device__ __forceinline__ void write(int slot, const ACCUMULATORS& accumulators) const {
        const auto* words = reinterpret_cast<const unsigned*>(&accumulators.c[0][0]);
        uint4* to = own_packets(slot);
#pragma unroll
        for (int i = 0; i < WORDS; i += 4)
            to[i / 4 * WARPGROUP] = make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
        bar_sync<WARPGROUP>(barrier);
    }

    __device__ __forceinline__ void publish(int slot, const ACCUMULATORS& accumulators) const {
        write(slot, accumulators);
        if (threadIdx.x % WARPGROUP == 0) set_flag(flags + slot);
    }

    // Waits until a slot is full, adds it to `accumulators`, and clears its flag.
    __device__ __forceinline__ void add_to(ACCUMULATORS& accumulators, int slot) const {
        if (threadIdx.x % WARPGROUP == 0) wait_for_flag(flags + slot);
        bar_sync<WARPGROUP>(barrier);
        const uint4* from = own_packets(slot);
#pragma unroll
        for (int i = 0; i < WORDS; i += 4) {
            const uint4 packet = from[i / 4 * WARPGROUP];
            const unsigned words[4] = {packet.x, packet.y, packet.z, packet.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                using REGISTER = typename ACCUMULATORS::INSTRUCTION::REGISTER;
                const int m64 = (i + j) / ACCUMULATORS::REGISTERS, number = (i + j) % ACCUMULATORS::REGISTERS;
                accumulators.add(accumulators.c[m64][number], *reinterpret_cast<const REGISTER*>(&words[j]));
            }
        }
        if (threadIdx.x % WARPGROUP == 0) clear_flag(flags + slot);
    }
};

}  // namespace warptile
