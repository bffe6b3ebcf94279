// Stream-K: CTAs share the K tiles of the last tiles of D, and complete each other's accumulators.
#pragma once

#include "tile/partial_accumulators.cuh"
#include "tile/tile_scheduler.cuh"

namespace warptile {

// The cluster that has the first K tile of a tile finishes it. The others publish what they have; it adds that in order
// of K, so that results do not depend on timing. `slot_of(cluster)` is the workspace slot of this warpgroup's
// counterpart in another cluster. Returns whether this warpgroup has the whole sum and stores the tile.
template <typename ACCUMULATORS, typename SCHEDULER, typename SLOT_OF>
__device__ __forceinline__ bool complete_stream_k_tile(ACCUMULATORS& accumulators, const SCHEDULER& scheduler,
                                                       const WorkTile& work,
                                                       const PartialAccumulators<ACCUMULATORS>& partial,
                                                       const SLOT_OF& slot_of) {
    if (work.first_k_tile > 0) {
        partial.publish(slot_of(scheduler.cluster), accumulators);
        return false;
    }
    if (work.k_tiles < scheduler.k_tiles) {
        const int tile_end = scheduler.next_k_tile - work.k_tiles + scheduler.k_tiles;
        for (int cluster = scheduler.cluster + 1; scheduler.first_k_tile_of(cluster) < tile_end; ++cluster)
            if (scheduler.first_k_tile_of(cluster) < scheduler.first_k_tile_of(cluster + 1))
                partial.add_to(accumulators, slot_of(cluster));
    }
    return true;
}

}  // namespace warptile
