// simt-gemv: few rows of D, or of its transpose. Every element of B is loaded once, straight into registers, and
// multiplied with all rows of A; what a block keeps in flight decides how fast B comes from DRAM. Warps of a block
// share K, and so do `splits` blocks; the last of these to finish adds up all partial sums, in the order of K, so that
// results do not depend on who is last. A launch takes a batch.
#pragma once

#include "ptx/memory_order.cuh"
#include "ptx/griddepcontrol.cuh"
#include "simt/register_tile.cuh"
#include "simt/operation.cuh"
#include "tile/batch.cuh"
#include "tile/parts_of_k.cuh"

namespace warptile {

// Beside the operands: a slot for each block's partial sums, and a counter of arrivals for each tile. Counters are zero
// when a launch begins and when it ends.
template <typename CONFIG>
struct SimtGemvParams {
    GemmParams<SwappableOperation<CONFIG>> gemm;
    typename CONFIG::ACCUMULATOR* partials;
    unsigned* arrivals;
    int splits;
    unsigned lets_next_start;  // the next launch may start early
    BatchStrides strides;
};

// COUNT neighbouring elements, in loads of WIDTH. Without WHOLE those from `inside` on are not read, and zero.
template <bool WHOLE, int WIDTH, int COUNT, typename ELEMENT>
__device__ __forceinline__ void load_elements(ELEMENT (&to)[COUNT], const ELEMENT* from, int inside) {
    static_assert(COUNT % WIDTH == 0, "whole loads");
    if constexpr (WHOLE) {
#pragma unroll
        for (int i = 0; i < COUNT; i += WIDTH) {
            const auto vector = *reinterpret_cast<const Vector<ELEMENT, WIDTH>*>(from + i);
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) to[i + j] = vector.element[j];
        }
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) to[i] = i < inside ? from[i] : static_cast<ELEMENT>(0.0f);
    }
}

// A thread's part of a tile of BM rows and BN columns.
template <typename CONFIG>
struct SimtGemv {
    using ELEMENT = typename CONFIG::ELEMENT;
    using ACCUMULATOR = typename CONFIG::ACCUMULATOR;
    static constexpr int BM = CONFIG::BM, BN = CONFIG::BN, WARPS = CONFIG::WARPS;
    static constexpr bool K_MAJOR = CONFIG::B_COLUMN_MAJOR;
    // Its columns: with a K-major B all of the tile's, else LOADS vectors of B_WIDTH that lie LANES vectors apart.
    static constexpr int B_WIDTH = CONFIG::B_WIDTH, VECTORS = BN / B_WIDTH;
    static constexpr int LANES = K_MAJOR ? 1 : VECTORS < 32 ? VECTORS : 32, LOADS = VECTORS / LANES;
    static constexpr int COLUMNS = K_MAJOR ? BN : LOADS * B_WIDTH;
    // Groups of LANES lanes share K. A lane's elements along K in one step, and those of all groups.
    static constexpr int GROUPS = 32 / LANES, STEP = CONFIG::BK, DEPTH = STEP / (GROUPS * WARPS);
    static_assert(STEP % (GROUPS * WARPS) == 0 && (!K_MAJOR || DEPTH % B_WIDTH == 0), "equal shares of K");
    static_assert(K_MAJOR || (BN % (LANES * B_WIDTH) == 0 && (LANES & (LANES - 1)) == 0), "whole loads of B");

    ACCUMULATOR sums[BM][COLUMNS];

    // The products from `begin` to `end` along K.
    template <typename GEMM>
    __device__ __forceinline__ void multiply(const GEMM& gemm, int row, int column, int begin, int end) {
#pragma unroll
        for (int i = 0; i < BM; ++i)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) sums[i][j] = 0;
        int k = begin + static_cast<int>(threadIdx.x) / LANES * DEPTH;
#pragma unroll 2
        for (; k + DEPTH <= end; k += STEP) add_products<true>(gemm, row, column, k, DEPTH);
        if (k < end) add_products<false>(gemm, row, column, k, end - k);
    }

    // Those of `inside` elements from k on. Past the end of K both operands count as zeros; rows and columns past the
    // end of D are the last ones again, for sums that are never stored.
    template <bool WHOLE, typename GEMM>
    __device__ __forceinline__ void add_products(const GEMM& gemm, int row, int column, int k, int inside) {
        ELEMENT b[K_MAJOR ? COLUMNS : DEPTH][K_MAJOR ? DEPTH : COLUMNS];
        if constexpr (K_MAJOR) {
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
                load_elements<WHOLE, B_WIDTH>(b[j], gemm.b + min(column + j, gemm.n - 1) * gemm.ldb + k, inside);
        } else {
            // n is a multiple of B_WIDTH: a vector lies wholly inside or wholly outside.
#pragma unroll
            for (int l = 0; l < DEPTH; ++l)
#pragma unroll
                for (int load = 0; load < LOADS; ++load) {
                    const int at = column + (load * LANES + static_cast<int>(threadIdx.x % LANES)) * B_WIDTH;
                    Vector<ELEMENT, B_WIDTH> vector{};
                    if (at < gemm.n && (WHOLE || l < inside))
                        vector = *reinterpret_cast<const Vector<ELEMENT, B_WIDTH>*>(gemm.b + (k + l) * gemm.ldb + at);
#pragma unroll
                    for (int j = 0; j < B_WIDTH; ++j) b[l][load * B_WIDTH + j] = vector.element[j];
                }
        }
        const auto product = [&](ELEMENT of_a, int l, int j) {
            return static_cast<ACCUMULATOR>(of_a) * static_cast<ACCUMULATOR>(K_MAJOR ? b[j][l] : b[l][j]);
        };
        if constexpr (CONFIG::A_COLUMN_MAJOR) {
            // m is a multiple of A_WIDTH: rows past the end are the last vector again.
#pragma unroll
            for (int l = 0; l < DEPTH; ++l)
#pragma unroll
                for (int i = 0; i < BM; i += CONFIG::A_WIDTH) {
                    ELEMENT a[CONFIG::A_WIDTH] = {};
                    if (WHOLE || l < inside)
                        load_elements<true, CONFIG::A_WIDTH>(
                            a, gemm.a_at(min(row + i, gemm.m - CONFIG::A_WIDTH), k + l), CONFIG::A_WIDTH);
#pragma unroll
                    for (int of_vector = 0; of_vector < CONFIG::A_WIDTH; ++of_vector)
#pragma unroll
                        for (int j = 0; j < COLUMNS; ++j) sums[i + of_vector][j] += product(a[of_vector], l, j);
                }
        } else {
#pragma unroll
            for (int i = 0; i < BM; ++i) {
                ELEMENT a[DEPTH];
                load_elements<WHOLE, CONFIG::A_WIDTH>(a, gemm.a_at(min(row + i, gemm.m - 1), k), inside);
#pragma unroll
                for (int l = 0; l < DEPTH; ++l)
#pragma unroll
                    for (int j = 0; j < COLUMNS; ++j) sums[i][j] += product(a[l], l, j);
            }
        }
    }

    // Leaves each warp's sums of the tile in shared memory: those of its groups of lanes, added up.
    __device__ __forceinline__ void share(ACCUMULATOR (&of_warps)[WARPS][BM * BN]) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < BM; ++i)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
#pragma unroll
                for (int other = 16; other >= LANES; other /= 2)
                    sums[i][j] += __shfl_xor_sync(0xffffffff, sums[i][j], other);
                const int at = K_MAJOR ? j : (j / B_WIDTH * LANES + lane) * B_WIDTH + j % B_WIDTH;
                if (lane < LANES) of_warps[warp][i * BN + at] = sums[i][j];
            }
        __syncthreads();
    }
};

template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::WARPS * 32, 1)
    simt_gemv(const __grid_constant__ SimtGemvParams<CONFIG> params) {
    using TILE = SimtGemv<CONFIG>;
    using ACCUMULATOR = typename CONFIG::ACCUMULATOR;
    constexpr int ELEMENTS = CONFIG::BM * CONFIG::BN, THREADS = CONFIG::WARPS * 32;
    __shared__ ACCUMULATOR of_warps[CONFIG::WARPS][ELEMENTS];
    __shared__ bool is_last;
    if (params.lets_next_start) let_next_launch_start();
    const unsigned splits = params.splits;
    const unsigned tiles_m = tiles_along(params.gemm.m, CONFIG::BM), tiles_n = tiles_along(params.gemm.n, CONFIG::BN);
    const PartOfTile<CONFIG::BATCHED> share(splits, tiles_m * tiles_n);
    const auto gemm = matrix_of_batch<CONFIG::BATCHED>(params.gemm, params.strides, share.matrix);
    const unsigned part = share.part, row_of_tiles = tiles_m == 1 ? 0 : share.tile / tiles_n;
    const int row = row_of_tiles * CONFIG::BM, column = (share.tile - row_of_tiles * tiles_n) * CONFIG::BN;
    const unsigned steps = tiles_along(gemm.k, TILE::STEP);
    const int begin = begin_of_part(steps, part, splits) * TILE::STEP;
    const int end = min(static_cast<int>(begin_of_part(steps, part + 1, splits) * TILE::STEP), gemm.k);
    wait_for_previous_launch();
    TILE own;
    own.multiply(gemm, row, column, begin, end);
    own.share(of_warps);

    const auto sum_of_block = [&](int e) {
        ACCUMULATOR sum = of_warps[0][e];
#pragma unroll
        for (int warp = 1; warp < CONFIG::WARPS; ++warp) sum += of_warps[warp][e];
        return sum;
    };
    // Element `e` of the tile, of all blocks that share it.
    ACCUMULATOR* const of_tile = params.partials + static_cast<long long>(share.number) * splits * ELEMENTS;
    if (splits > 1) {
        for (int e = threadIdx.x; e < ELEMENTS; e += THREADS) of_tile[part * ELEMENTS + e] = sum_of_block(e);
        __syncthreads();
        if (threadIdx.x == 0) is_last = atom_acq_rel_gpu_inc(params.arrivals + share.number, splits - 1) == splits - 1;
        __syncthreads();
        if (!is_last) return;
    }
    for (int e = threadIdx.x; e < ELEMENTS; e += THREADS) {
        if (row + e / CONFIG::BN >= gemm.m || column + e % CONFIG::BN >= gemm.n) continue;
        ACCUMULATOR sum = 0;
        if (splits > 1) {
#pragma unroll 4
            for (unsigned i = 0; i < splits; ++i) sum += __ldcg(of_tile + i * ELEMENTS + e);
        } else {
            sum = sum_of_block(e);
        }
        store_element(sum, gemm, row + e / CONFIG::BN, column + e % CONFIG::BN);
    }
}

}  // namespace warptile
