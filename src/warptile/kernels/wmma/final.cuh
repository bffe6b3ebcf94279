// wmma-final: fragments overlap across stages too, products go in zig-zag order, blocks in groups, D leaves in vectors;
// the tile sizes are tuned.
#pragma once

#include "tile/raster.cuh"
#include "tile/stream.cuh"
#include "tile/vector_epilogue.cuh"

namespace warptile {

// Where the main loop stands: the tile that is multiplied, the stage that it is in, the stage that is filled next.
struct Ring {
    int tile, reading, filling;
};

// Multiplies ring.tile, whose first fragments are loaded, and starts the copies of the tile STAGES - 1 further on.
// WHOLE says that that tile is whole: the body then has no branch, and the compiler spreads copies, loads and products.
template <bool WHOLE, bool ZIGZAG, int STAGES, typename OPERATION, typename TILE, typename STREAM, typename MEMORY>
__device__ __forceinline__ void multiply_tile(Accumulators<OPERATION, TILE>& accumulators,
                                              Fragments<OPERATION, TILE> (&fragments)[2], STREAM& stream,
                                              MEMORY& memory, Ring& ring) {
    constexpr int STEPS = TILE::BK / OPERATION::STEP;
    static_assert(TILE::BK % (2 * OPERATION::STEP) == 0, "the two sets of fragments take turns: an even number of steps");
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        if (step == STEPS - 1) {
            // The next step's fragments are in the next stage: it must have arrived, for every thread. After the
            // barrier nobody reads the present one any more: the next tile's copies may overwrite it.
            // At the end there is no next stage, and the present one is read again, for nothing.
            cp_async_wait_group<STAGES - 2>();
            __syncthreads();
            ring.filling = ring.reading;
            if (ring.tile + 1 < stream.tiles_k) ring.reading = ring.reading + 1 == STAGES ? 0 : ring.reading + 1;
        }
        fragments[(step + 1) % 2].load(memory.stages[ring.reading], (step + 1) % STEPS * OPERATION::STEP);
        if (step == 0) {
            if constexpr (WHOLE) {
                stream.stage_whole(memory.stages[ring.filling]);
            } else {
                stream.stage_any(memory.stages[ring.filling], ring.tile + STAGES - 1);
            }
            cp_async_commit_group();  // empty past the last tile: the wait counts groups, not tiles
        }
        multiply<ZIGZAG>(accumulators, fragments[step % 2]);
    }
    ++ring.tile;
}

template <typename OPERATION, typename TILE, typename WIDTHS, int PAD, int STAGES, int GROUP, bool ZIGZAG,
          int MIN_BLOCKS>
__global__ void __launch_bounds__(TILE::THREADS, MIN_BLOCKS)
    wmma_final(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
               const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
               long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
               typename OPERATION::SCALE beta) {
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    const auto position = grouped_tile<GROUP>(blockIdx.x, tiles_along(m, TILE::BM), tiles_along(n, TILE::BN));
    const int row = position.row * TILE::BM, column = position.column * TILE::BN;
    static_assert(STAGES >= 2, "a ring has a stage to fill beside the one that is read");
    extern __shared__ __align__(128) unsigned char dynamic_memory[];
    using MEMORY = BlockMemory<OPERATION, TILE, PAD, STAGES, RowPatch<OPERATION, TILE::WN>>;
    auto& memory = *reinterpret_cast<MEMORY*>(dynamic_memory);

    Accumulators<OPERATION, TILE> accumulators;
    Fragments<OPERATION, TILE> fragments[2];
    accumulators.zero();

    BlockStream<AsyncCopy, OPERATION, TILE, WIDTHS, PAD> stream(gemm, row, column);
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) {
        stream.stage_any(memory.stages[ahead], ahead);
        cp_async_commit_group();
    }
    cp_async_wait_group<STAGES - 2>();
    __syncthreads();  // the first stage is full
    fragments[0].load(memory.stages[0], 0);

    Ring ring{0, 0, STAGES - 1};
#pragma unroll 1
    while (ring.tile + STAGES - 1 < stream.whole_tiles)
        multiply_tile<true, ZIGZAG, STAGES>(accumulators, fragments, stream, memory, ring);
#pragma unroll 1
    while (ring.tile < stream.tiles_k)
        multiply_tile<false, ZIGZAG, STAGES>(accumulators, fragments, stream, memory, ring);
    __syncthreads();  // the stages turn into patches
    store_rows<WIDTHS::D>(accumulators, memory.patches, gemm, row, column);
}

}  // namespace warptile
