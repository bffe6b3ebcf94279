// Sums over a part of the depth, handed from one block to another through global memory.
#pragma once

#include "ptx/flag.cuh"
#include "ptx/shared.cuh"
#include "ptx/warpgroup.cuh"

namespace warptile {

// One place for each warpgroup of each block, with a flag that says that it is full. Flags are down when a launch begins
// and when it ends.
template <typename ACCUMULATORS>
struct PartialSums {
    static constexpr int WORDS = ACCUMULATORS::BLOCKS * ACCUMULATORS::REGISTERS, BYTES = WORDS * 4 * WARPGROUP;
    static_assert(WORDS % 4 == 0, "registers leave in packets of four");
    unsigned char* places;
    unsigned* flags;
    int barrier;  // of this warpgroup

    // This thread's first packet of a place; its others follow WARPGROUP packets apart each: neighbours lie side by side.
    __device__ __forceinline__ uint4* at(int place) const { return packets(place) + threadIdx.x % WARPGROUP; }

    __device__ __forceinline__ uint4* packets(int place) const {
        return reinterpret_cast<uint4*>(places + static_cast<long long>(place) * BYTES);
    }

    // Writes a place; done when the warpgroup has met.
    __device__ __forceinline__ void write(int place, const ACCUMULATORS& sums) const {
        const auto* words = reinterpret_cast<const unsigned*>(&sums.c[0][0]);
        uint4* to = at(place);
#pragma unroll
        for (int i = 0; i < WORDS; i += 4)
            to[i / 4 * WARPGROUP] = make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
        named_barrier<WARPGROUP>(barrier);
    }

    __device__ __forceinline__ void put(int place, const ACCUMULATORS& sums) const {
        write(place, sums);
        if (threadIdx.x % WARPGROUP == 0) raise_flag(flags + place);
    }

    // Waits until the place is full, adds what is there, and lowers its flag.
    __device__ __forceinline__ void add_to(ACCUMULATORS& sums, int place) const {
        if (threadIdx.x % WARPGROUP == 0) wait_for_flag(flags + place);
        named_barrier<WARPGROUP>(barrier);
        const uint4* from = at(place);
#pragma unroll
        for (int i = 0; i < WORDS; i += 4) {
            const uint4 packet = from[i / 4 * WARPGROUP];
            const unsigned words[4] = {packet.x, packet.y, packet.z, packet.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                using REGISTER = typename ACCUMULATORS::INSTRUCTION::REGISTER;
                const int block = (i + j) / ACCUMULATORS::REGISTERS, number = (i + j) % ACCUMULATORS::REGISTERS;
                sums.add(sums.c[block][number], *reinterpret_cast<const REGISTER*>(&words[j]));
            }
        }
        if (threadIdx.x % WARPGROUP == 0) lower_flag(flags + place);
    }
};

}  // namespace warptile
