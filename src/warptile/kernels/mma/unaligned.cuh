// mma-unaligned: 16-bit products at any alignment in one launch, of many small matrices above all. Lines of A and B are
// copied as they lie (tile/lines.cuh), tiles may be as small as 16 x 16, and a CTA of warps that own a tile each has
// TILES of them.
#pragma once

#include "ptx/griddepcontrol.cuh"
#include "tile/batch.cuh"
#include "tile/lines.cuh"
#include "tile/mma_epilogue.cuh"
#include "tile/mma_staging.cuh"
#include "tile/raster.cuh"

namespace warptile {

template <typename CONFIG>
struct MmaUnalignedParams {
    GemmParams<typename CONFIG::OPERATION> gemm;
    unsigned tiles;  // of all matrices
    BatchStrides strides;
};

// One block tile of D: rows from `row`, columns from `column` on.
template <typename CONFIG>
struct UnalignedTile {
    using OPERATION = typename CONFIG::OPERATION;
    using ELEMENT = typename OPERATION::ELEMENT;
    using TILE = typename CONFIG::TILE;
    using ACCESS = typename CONFIG::ACCESS;
    using OUT = typename OPERATION::OUT;
    using ACC_ELEMENT = typename OPERATION::ACC_ELEMENT;
    using ACCUMULATORS = MmaAccumulators<OPERATION, TILE>;
    using PATCH = MmaPatch<OPERATION, TILE>;
    using A = LineTile<ELEMENT, TILE::BM, TILE::BK, !OPERATION::A_COLUMN_MAJOR, ACCESS::A>;
    using B = LineTile<ELEMENT, TILE::BN, TILE::BK, OPERATION::B_COLUMN_MAJOR, ACCESS::B>;
    static constexpr int STAGES = CONFIG::STAGES, STAGE_BYTES = A::BYTES + B::BYTES;
    static constexpr int STORED_BYTES = CONFIG::STORES_VECTORS ? TILE::WARPS * int(sizeof(PATCH)) : 0;
    static constexpr int ALL_BYTES = STAGES * STAGE_BYTES > STORED_BYTES ? STAGES * STAGE_BYTES : STORED_BYTES;
    static constexpr int BYTES = (ALL_BYTES + 127) / 128 * 128;  // patches are aligned

    const GemmParams<OPERATION>& gemm;
    const ELEMENT *const memory_a, *const memory_b;  // where the first matrices of a batch begin
    const int row, column;
    unsigned char* const memory;  // stages, then patches

    // The threads of one tile wait for each other. Of several tiles in a CTA each is a warp's.
    static __device__ __forceinline__ void synchronize() {
        if constexpr (TILE::WARPS == 1) {
            __syncwarp();
        } else {
            static_assert(CONFIG::TILES == 1, "a CTA has several tiles where each is a warp's");
            __syncthreads();
        }
    }

    // Starts the copies of the tile along K with that number.
    __device__ __forceinline__ void stage(int number) const {
        const int k = number * TILE::BK, left = gemm.k - k, thread = threadIdx.x;
        const unsigned to = shared_address(memory) + number % STAGES * STAGE_BYTES;
        const int rows = gemm.m - row, columns = gemm.n - column;
        A::template stage<TILE::THREADS>(to, gemm.a_at(row, k), memory_a, gemm.lda, A::K_MAJOR ? rows : left,
                                         A::K_MAJOR ? left : rows, thread);
        B::template stage<TILE::THREADS>(to + A::BYTES, gemm.b_at(k, column), memory_b, gemm.ldb,
                                         B::K_MAJOR ? columns : left, B::K_MAJOR ? left : columns, thread);
    }

    __device__ __forceinline__ void multiply(ACCUMULATORS& accumulators) const {
        const LineFragments<A, true, ACCESS::A> of_a(gemm.a_at(row, 0), gemm.lda, TILE::warp_row());
        const LineFragments<B, false, ACCESS::B> of_b(gemm.b_at(0, column), gemm.ldb, TILE::warp_column());
        const int tiles_k = tiles_along(gemm.k, TILE::BK);
        accumulators.zero();
#pragma unroll 1
        for (int ahead = 0; ahead < STAGES; ++ahead) {  // a short K is on its way as a whole
            if (ahead < tiles_k) stage(ahead);
            cp_async_commit_group();
        }
        cp_async_wait_group<STAGES - 1>();
#pragma unroll 1
        for (int tile = 0; tile < tiles_k; ++tile) {
            if constexpr (STAGES > 1) {
                if (tile > 0) cp_async_wait_group<STAGES - 2>();
            }
            synchronize();  // the tile is there, and all have read the one before, whose stage is filled next
            if (STAGES > 1 && tile > 0) {
                if (tile + STAGES - 1 < tiles_k) stage(tile + STAGES - 1);
                cp_async_commit_group();
            }
            const unsigned at = shared_address(memory) + tile % STAGES * STAGE_BYTES;
#pragma unroll
            for (int k_block = 0; k_block < TILE::BK / 16; ++k_block) {
                MmaFragments<OPERATION, TILE> fragments;
#pragma unroll
                for (int i = 0; i < fragments.TILES16_A; ++i) of_a.load(fragments.a[i], at, i, k_block);
#pragma unroll
                for (int i = 0; i < fragments.TILES16_B; ++i) {
                    unsigned words[4];
                    of_b.load(words, at + A::BYTES, i, k_block);
#pragma unroll
                    for (int word = 0; word < 4; ++word) fragments.b[2 * i + word / 2][word % 2] = words[word];
                }
                accumulators.multiply(fragments);
            }
        }
        synchronize();
    }

    __device__ __forceinline__ void store(const ACCUMULATORS& accumulators) const {
        if constexpr (CONFIG::STORES_VECTORS) {
            constexpr int WIDTH = ACCESS::D / static_cast<int>(sizeof(OUT));
            store_tile<WIDTH>(accumulators, reinterpret_cast<PATCH*>(memory), gemm, row, column);
        } else {
#pragma unroll
            for (int i = 0; i < accumulators.ROWS; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half) store_row(accumulators.at[i], i, half);
        }
    }

  private:
    // Stores a row of fragments from registers, in pairs of elements if there are many. Where pairs of D begin at the
    // second element of those of the fragments, a lane pairs it with the first one of the next lane.
    __device__ __forceinline__ void store_row(
        const typename OPERATION::REGISTER (&fragments)[ACCUMULATORS::COLUMNS][OPERATION::C_REGISTERS], int i,
        int half) const {
        constexpr int COLUMNS = ACCUMULATORS::COLUMNS;
        static_assert(PATCH::PLACEMENT_B::NEIGHBOURS, "a lane has neighbours of a row");
        const int lane = threadIdx.x % 32, t = lane % 4;
        const int r = row + TILE::warp_row() + PATCH::PLACEMENT_A::at(i, half, lane / 4);
        const int first_column = column + TILE::warp_column(), left = r < gemm.m ? gemm.n - first_column : 0;
        OUT* const line = gemm.d + r * gemm.ldd + first_column;
        OUT values[COLUMNS][2];
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            const auto pair = pair_of<ACC_ELEMENT>(fragments[j], half);
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int c = 8 * j + 2 * t + e;
                values[j][e] = OUT(0.0f);
                if (c >= left) continue;
                const ACC_ELEMENT value[1] = {pair.elements[e]};
                OUT source[1], result[1];
                if (gemm.beta != typename OPERATION::SCALE(0)) source[0] = gemm.c[r * gemm.ldc + first_column + c];
                elements_of_d(value, source, result, gemm, r, first_column + c);
                values[j][e] = result[0];
            }
        }
        if constexpr (sizeof(OUT) == 2 && COLUMNS > 2) {
            const int odd = ACCESS::D == 2 ? elements_past<4>(line) : 0;
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
                Vector<OUT, 2> pair{{values[j][0], values[j][1]}};
                const int c = 8 * j + 2 * t + odd;
                if constexpr (ACCESS::D == 2) {
                    const int after = j + 1 < COLUMNS ? j + 1 : j;
                    const OUT offered = t == 0 ? values[after][0] : values[j][0];
                    const OUT next = __shfl_sync(~0u, offered, lane / 4 * 4 + (t + 1) % 4);
                    if (odd) pair = {{values[j][1], next}};
                }
                if (c + 1 < min(left, TILE::WN)) {
                    *reinterpret_cast<Vector<OUT, 2>*>(line + c) = pair;
                } else if (c < min(left, TILE::WN)) {
                    line[c] = pair.elements[0];
                }
            }
            if (odd && t == 0 && left > 0) line[0] = values[0][0];
        } else {
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (8 * j + 2 * t + e < left) line[8 * j + 2 * t + e] = values[j][e];
        }
    }
};

// A CTA has TILE::THREADS threads along x for each of its TILES tiles along y.
template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS* CONFIG::TILES, CONFIG::MIN_BLOCKS)
    mma_unaligned(const __grid_constant__ MmaUnalignedParams<CONFIG> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = UnalignedTile<CONFIG>;
    extern __shared__ __align__(128) unsigned char memory[];
#if __CUDA_ARCH__ >= 900
    griddepcontrol_launch_dependents();
    griddepcontrol_wait();
#endif
    const unsigned number = blockIdx.x * CONFIG::TILES + threadIdx.y;
    if (CONFIG::TILES > 1 && number >= params.tiles) return;
    const unsigned tiles_m = tiles_along(params.gemm.m, CONFIG::TILE::BM),
                   tiles_n = tiles_along(params.gemm.n, CONFIG::TILE::BN);
    const unsigned matrix = CONFIG::BATCHED ? number / (tiles_m * tiles_n) : 0;
    const GemmParams<OPERATION> gemm = matrix_of_batch<CONFIG::BATCHED>(params.gemm, params.strides, matrix);
    const auto position = grouped_tile<CONFIG::GROUP>(number - matrix * tiles_m * tiles_n, tiles_m, tiles_n);
    const TILE tile{gemm,
                    params.gemm.a,
                    params.gemm.b,
                    position.row * CONFIG::TILE::BM,
                    position.column * CONFIG::TILE::BN,
                    memory + threadIdx.y * TILE::BYTES};
    typename TILE::ACCUMULATORS accumulators;
    tile.multiply(accumulators);
    tile.store(accumulators);
}

}  // namespace warptile
