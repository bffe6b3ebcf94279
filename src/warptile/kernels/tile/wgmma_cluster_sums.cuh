// Tiles whose depth is divided among the blocks of a cluster, which add their sums through shared memory.
#pragma once

#include "ptx/cluster.cuh"
#include "tile/wgmma_accumulators.cuh"

namespace warptile {

// Every block leaves its sums in its own shared memory; when all have, each adds its part of the columns of everybody's,
// always in the same order. The SPLITS blocks of a tile have ranks `first`, `first` + `stride` and so on in their cluster;
// this is the `number`-th of them.
template <typename ACCUMULATORS, int SPLITS, int CONSUMERS>
struct ClusterSums {
    static constexpr int BLOCKS = ACCUMULATORS::BLOCKS, EIGHTS = ACCUMULATORS::EIGHTS;
    static constexpr int PACKET_BYTES = ACCUMULATORS::REGISTERS / EIGHTS * 4;  // of a thread, of eight columns
    static constexpr int BYTES = BLOCKS * EIGHTS * PACKET_BYTES * WARPGROUP;
    using PART = typename ACCUMULATORS::template Part<EIGHTS / SPLITS * 8>;
    unsigned place;  // of this warpgroup's sums, where stages were
    int first, stride, number;

    __device__ __forceinline__ unsigned at(int eight) const {
        return place + (eight * WARPGROUP + threadIdx.x % WARPGROUP) * PACKET_BYTES;
    }

    // Everybody's sums of this block's part. The producer's warps meet the others with `cluster_barrier` at the same time.
    __device__ __forceinline__ PART add(const ACCUMULATORS& sums) const {
        // The other warpgroup has read its stages as well.
        if constexpr (CONSUMERS > 1) named_barrier<CONSUMERS * WARPGROUP>(CONSUMERS + 1);
        const auto* packets = reinterpret_cast<const Packet<PACKET_BYTES>*>(&sums.c[0][0]);
#pragma unroll
        for (int i = 0; i < BLOCKS * EIGHTS; ++i) store_shared(at(i), packets[i]);
        cluster_barrier<false>();
        PART whole;
        whole.zero();
#pragma unroll
        for (int split = 0; split < SPLITS; ++split) {
            PART theirs;
            auto* found = reinterpret_cast<Packet<PACKET_BYTES>*>(&theirs.c[0][0]);
#pragma unroll
            for (int block = 0; block < BLOCKS; ++block)
#pragma unroll
                for (int i = 0; i < PART::EIGHTS; ++i)
                    found[block * PART::EIGHTS + i] = load_packet_of<PACKET_BYTES>(
                        first + split * stride, at(block * EIGHTS + number * PART::EIGHTS + i));
            whole.add(theirs);
        }
        return whole;
    }
};

}  // namespace warptile
