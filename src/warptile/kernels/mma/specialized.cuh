// mma-specialized: float64 on Hopper. Each consumer warpgroup has a producer warp, which loads its stages by TMA, and
// takes one tile of D after the other: while it stores one, the tensor cores multiply another consumer's. A launch
// takes a batch.
#pragma once

#include "ptx/griddepcontrol.cuh"
#include "ptx/warpgroup.cuh"
#include "tile/batch.cuh"
#include "tile/mma_double_fragments.cuh"
#include "tile/mma_epilogue.cuh"
#include "tile/mma_tma_pipeline.cuh"
#include "tile/pipeline.cuh"
#include "tile/raster.cuh"

namespace warptile {

template <typename OPERATION>
struct MmaSpecializedParams {
    MmaTmaParams<OPERATION> of_tma;
    BatchStrides strides;
    int batch;
};

// The tile of a consumer, whose warps are counted within it.
template <typename TILE>
struct TileOfConsumer : TILE {
    static __device__ __forceinline__ int warp_row() {
        return threadIdx.x / 32 % TILE::WARPS / TILE::WARPS_N * TILE::WM;
    }
    static __device__ __forceinline__ int warp_column() { return threadIdx.x / 32 % TILE::WARPS_N * TILE::WN; }
};

// The tiles of D that a consumer and its producer take, one after the other: every `step`-th, from number `next` on.
template <typename TILE, int GROUP, bool BATCHED>
struct TilesOfConsumer {
    const unsigned tiles_m, tiles_n, tiles, step;
    unsigned next;

    __device__ __forceinline__ TilesOfConsumer(int m, int n, int batch, int consumer, int consumers)
        : tiles_m(tiles_along(m, TILE::BM)),
          tiles_n(tiles_along(n, TILE::BN)),
          tiles(tiles_m * tiles_n * (BATCHED ? batch : 1)),
          step(gridDim.x * consumers),
          next(consumer * gridDim.x + blockIdx.x) {}

    // The next tile's first row and column, and its matrix; false when there is none.
    __device__ __forceinline__ bool take(int& row, int& column, unsigned& matrix) {
        if (next >= tiles) return false;
        matrix = BATCHED ? next / (tiles_m * tiles_n) : 0;
        const auto position = grouped_tile<GROUP>(BATCHED ? next % (tiles_m * tiles_n) : next, tiles_m, tiles_n);
        row = position.row * TILE::BM;
        column = position.column * TILE::BN;
        next += step;
        return true;
    }
};

// A consumer's warp: its accumulators and fragments. Of A it holds what is multiplied and what comes next; of B one
// k-block, each of whose fragments is replaced by the next k-block's when its last MMA has been issued.
template <typename OPERATION, typename TILE, typename PIPELINE>
struct MmaConsumer {
    using STAGE = MmaStage<OPERATION, TILE, true>;
    using LOADER_A = DoubleFragmentLoader<typename STAGE::A, true>;
    using LOADER_B = DoubleFragmentLoader<typename STAGE::B, false>;
    static constexpr int GROUPS = TILE::WM / 16, COLUMNS = TILE::WN / 8, K_BLOCKS = TILE::BK / OPERATION::K_BLOCK;
    static_assert(GROUPS % 2 == 0, "fragments of A alternate: an even number");

    const PIPELINE pipeline;
    const LOADER_A loader_a{TILE::warp_row()};
    const LOADER_B loader_b{TILE::warp_column()};
    typename PIPELINE::STATE at;  // the stage that is read next
    double a[2][OPERATION::A_WORDS], b[COLUMNS][OPERATION::B_WORDS];
    MmaAccumulators<OPERATION, TILE> accumulators;

    __device__ __forceinline__ explicit MmaConsumer(const PIPELINE& pipeline) : pipeline(pipeline) {}

    // Computes the accumulators of a tile of D from its next `k_tiles` K tiles.
    __device__ __forceinline__ void multiply(int k_tiles) {
        accumulators.zero();
        if (k_tiles == 0) return;
        const unsigned stage = wait();
        loader_a.load(a[0], stage, 0, 0);
#pragma unroll
        for (int tile16 = 0; tile16 < COLUMNS / 2; ++tile16) load_b(stage, tile16, 0);
        unsigned present = stage;
#pragma unroll 1
        for (int k_tile = 1; k_tile < k_tiles; ++k_tile) present = multiply_k_tile<true>(present);
        multiply_k_tile<false>(present);
    }

  private:
    // Waits for the K tile that comes next, and gives its stage.
    __device__ __forceinline__ unsigned wait() {
        pipeline.consumer_wait(at);
        return pipeline.stage_address(at.stage);
    }

    // Columns 16 `tile16` and following of B, at `k_block` of the stage at `stage`.
    __device__ __forceinline__ void load_b(unsigned stage, int tile16, int k_block) {
        loader_b.load(b[2 * tile16], stage + STAGE::B_OFFSET, tile16, k_block);
    }

    // Multiplies the K tile in the stage at `present`, whose first fragments are loaded already. With MORE it waits for
    // the next one, loads its first fragments, and gives its stage.
    template <bool MORE>
    __device__ __forceinline__ unsigned multiply_k_tile(unsigned present) {
        const unsigned empty = pipeline.empty_barrier(at.stage);
        unsigned following = present;
        at.advance();
#pragma unroll
        for (int k_block = 0; k_block < K_BLOCKS; ++k_block) {
            const bool last = k_block == K_BLOCKS - 1, loads = !last || MORE;
            const int next_k_block = last ? 0 : k_block + 1;
            if (last && MORE) following = wait();
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) {
                const bool last_group = group == GROUPS - 1;
                if (!last_group) {
                    loader_a.load(a[(group + 1) % 2], present, group + 1, k_block);
                } else if (loads) {
                    loader_a.load(a[0], following, 0, next_k_block);
                }
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j) {
                    OPERATION::multiply(accumulators.at[group][j], a[group % 2], b[j]);
                    if (last_group && loads && j % 2 == 1) load_b(following, j / 2, next_k_block);
                }
            }
        }
        // The MMAs above take what was loaded last, but the compiler may move the arrival before them. The fence keeps
        // TMA, another proxy, from writing before those loads have read.
        fence_proxy_async();
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(empty);
        return following;
    }
};

// Registers of a thread. Together they are no more than those with which a CTA starts: 168 for each thread of 384, or
// 128 of 512.
template <int CONSUMERS>
inline constexpr int CONSUMER_REGISTERS = CONSUMERS == 2 ? 232 : 160;
template <int CONSUMERS>
inline constexpr int PRODUCER_REGISTERS = CONSUMERS == 2 ? 40 : 32;

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::CONSUMERS* WARPGROUP + WARPGROUP, 1)
    mma_specialized(const __grid_constant__ MmaSpecializedParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = TileOfConsumer<typename CONFIG::TILE>;
    constexpr int STAGES = CONFIG::STAGES, CONSUMERS = CONFIG::CONSUMERS, WARPS = TILE::WARPS;
    constexpr bool BATCHED = CONFIG::BATCHED;
    using STAGE = MmaStage<OPERATION, TILE, true>;
    using PIPELINE = Pipeline<STAGES, STAGE::BYTES>;
    using CONSUMER = MmaConsumer<OPERATION, TILE, PIPELINE>;
    using PATCH =
        MmaPatch<OPERATION, TILE, typename CONSUMER::LOADER_A::PLACEMENT, typename CONSUMER::LOADER_B::PLACEMENT>;
    static_assert(TILE::THREADS == WARPGROUP, "a consumer is a warpgroup");
    static_assert(CONSUMERS == 2 || CONSUMERS == 3, "registers are divided for two consumers or three");
    static_assert(STAGE::B_OFFSET % 1024 == 0 && STAGE::BYTES % 1024 == 0,
                  "boxes start at multiples of 1024 bytes, where the swizzle repeats");
    extern __shared__ __align__(1024) unsigned char memory[];  // each consumer's stages; patches; each one's barriers
    auto* const patches = reinterpret_cast<PATCH*>(memory + CONSUMERS * STAGES * STAGE::BYTES);
    const unsigned stages = shared_address(memory), barriers = shared_address(patches + CONSUMERS * WARPS);
    const auto pipeline_of = [&](int consumer) {
        return PIPELINE{stages + consumer * STAGES * STAGE::BYTES, barriers + consumer * PIPELINE::BARRIER_BYTES};
    };
    const GemmParams<OPERATION>& first = params.of_tma.gemm;
    if (threadIdx.x == 0)
        for (int consumer = 0; consumer < CONSUMERS; ++consumer) pipeline_of(consumer).init(WARPS);
    __syncthreads();
    let_next_launch_start();
    wait_for_previous_launch();

    using TILES = TilesOfConsumer<TILE, CONFIG::GROUP, BATCHED>;
    const int warp = warp_uniform(threadIdx.x / 32), k_tiles = tiles_along(first.k, TILE::BK);
    int row, column;
    unsigned matrix;
    if (warp >= CONSUMERS * WARPS) {
        setmaxnreg_dec<PRODUCER_REGISTERS<CONSUMERS>>();
        const int consumer = warp - CONSUMERS * WARPS;
        if (consumer >= CONSUMERS || !elect_one()) return;
        const PIPELINE pipeline = pipeline_of(consumer);
        typename PIPELINE::STATE at;
        TILES tiles(first.m, first.n, params.batch, consumer, CONSUMERS);
        while (tiles.take(row, column, matrix)) {
            const int of_a = params.strides.a != 0 ? matrix : 0, of_b = params.strides.b != 0 ? matrix : 0;
            for (int k = 0; k < k_tiles * TILE::BK; k += TILE::BK) {
                pipeline.producer_acquire(at);
                const unsigned stage = pipeline.stage_address(at.stage), full = pipeline.full_barrier(at.stage);
                mbarrier_arrive_expect_tx(full, STAGE::BYTES);
                load_panels<typename STAGE::A, BATCHED>(stage, params.of_tma.map_a, row, k, of_a, full);
                load_panels<typename STAGE::B, BATCHED>(stage + STAGE::B_OFFSET, params.of_tma.map_b, column, k, of_b,
                                                        full);
                at.advance();
            }
        }
    } else {
        setmaxnreg_inc<CONSUMER_REGISTERS<CONSUMERS>>();
        const int consumer = warp / WARPS;
        CONSUMER multiplier(pipeline_of(consumer));
        TILES tiles(first.m, first.n, params.batch, consumer, CONSUMERS);
        while (tiles.take(row, column, matrix)) {
            multiplier.multiply(k_tiles);
            const GemmParams<OPERATION> gemm = matrix_of_batch<BATCHED>(first, params.strides, matrix);
            store_tile<CONFIG::D_BYTES / static_cast<int>(sizeof(typename OPERATION::OUT)), CONFIG::VECTORS_AT_ONCE>(
                multiplier.accumulators, patches, gemm, row, column);
        }
    }
}

}  // namespace warptile
