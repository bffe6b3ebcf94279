// Split-K within a cluster: the CTAs of a tile add their accumulators through distributed shared memory.
#pragma once

#include "ptx/cluster.cuh"
#include "tile/wgmma_accumulators.cuh"

namespace warptile {

// Every CTA writes its accumulators to its own shared memory. When all have, each adds one part of the columns of all
// CTAs, always in the same order. The SPLITS CTAs of a tile have the ranks `first`, `first` + `stride` and so on in
// their cluster; this one is number `split`.
template <typename ACCUMULATORS, int SPLITS, int CONSUMERS>
struct ClusterReduction {
    static constexpr int M64_BLOCKS = ACCUMULATORS::M64_BLOCKS, N8_BLOCKS = ACCUMULATORS::N8_BLOCKS;
    static constexpr int PACKET_BYTES = ACCUMULATORS::REGISTERS / N8_BLOCKS * 4;  // of a thread, of an n8 block
    static constexpr int BYTES = M64_BLOCKS * N8_BLOCKS * PACKET_BYTES * WARPGROUP;
    using PART = typename ACCUMULATORS::template Part<N8_BLOCKS / SPLITS * 8>;
    unsigned buffer;  // of this warpgroup, in the memory of the pipeline's stages
    int first, stride, split;

    __device__ __forceinline__ unsigned packet_address(int n8) const {
        return buffer + (n8 * WARPGROUP + threadIdx.x % WARPGROUP) * PACKET_BYTES;
    }

    // The sum over all CTAs of this CTA's part. The producer's warps take part in the cluster barrier inside.
    __device__ __forceinline__ PART reduce(const ACCUMULATORS& accumulators) const {
        // The stages are overwritten: all consumer warps must have read them.
        bar_sync<CONSUMERS * WARPGROUP>(CONSUMERS + 1);
        const auto* packets = reinterpret_cast<const Packet<PACKET_BYTES>*>(&accumulators.c[0][0]);
#pragma unroll
        for (int i = 0; i < M64_BLOCKS * N8_BLOCKS; ++i) st_shared(packet_address(i), packets[i]);
        cluster_sync();
        PART sum;
        sum.zero();
#pragma unroll
        for (int from = 0; from < SPLITS; ++from) {
            PART other;
            auto* loaded = reinterpret_cast<Packet<PACKET_BYTES>*>(&other.c[0][0]);
#pragma unroll
            for (int m64 = 0; m64 < M64_BLOCKS; ++m64)
#pragma unroll
                for (int i = 0; i < PART::N8_BLOCKS; ++i)
                    loaded[m64 * PART::N8_BLOCKS + i] = ld_shared_cluster<PACKET_BYTES>(
                        mapa(packet_address(m64 * N8_BLOCKS + split * PART::N8_BLOCKS + i), first + from * stride));
            sum.add(other);
        }
        return sum;
    }
};

}  // namespace warptile
