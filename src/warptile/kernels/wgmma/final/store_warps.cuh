// Store warps: warps beside the producer that store finished subtiles which TMA cannot, while consumers go on
// multiplying.
#pragma once

#include "wgmma/final/config.cuh"

namespace warptile {

// Warp 1 + i stores the subtiles that consumer i queues. The consumer itself stores the last tile's held subtiles: it
// has no next mainloop to overlap them with.
template <typename KERNEL>
__device__ __forceinline__ void store_warps(const typename KERNEL::SharedMemory& shared,
                                            const GemmParams<typename KERNEL::OPERATION>& gemm, const TensorMap& map_d,
                                            long long batch_stride, int tiles) {
    typename KERNEL::EPILOGUE epilogue{gemm, map_d, shared.epilogue(threadIdx.x / 32 - 1), 0, 0, batch_stride};
    for (int subtiles = KERNEL::SUBTILES * tiles - KERNEL::HELD; subtiles > 0; --subtiles) epilogue.store_enqueued();
}

}  // namespace warptile
