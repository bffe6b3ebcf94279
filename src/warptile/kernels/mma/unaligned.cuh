// mma-unaligned: 16-bit products at any alignment in one launch, of many small matrices above all. Lines of A and B are
// copied as they lie (tile/lines.cuh), tiles may be as small as 16 x 16, and a CTA of warps that own a tile each has
// TILES of them.
#pragma once

#include "ptx/griddepcontrol.cuh"
#include "tile/batch.cuh"
#include "tile/lines.cuh"
#include "tile/mma_epilogue.cuh"
#include "tile/mma_staging.cuh"
#include "tile/stored_lines.cuh"

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
    using LINES = StoredLines<OUT, TILE::BM, TILE::BN, ACCESS::D>;
    using A = LineTile<ELEMENT, TILE::BM, TILE::BK, !OPERATION::A_COLUMN_MAJOR, ACCESS::A>;
    using B = LineTile<ELEMENT, TILE::BN, TILE::BK, OPERATION::B_COLUMN_MAJOR, ACCESS::B>;
    static constexpr int STAGES = CONFIG::STAGES, STAGE_BYTES = A::BYTES + B::BYTES;
    static constexpr int STORED_BYTES = CONFIG::STORES_REGISTERS ? 0 : LINES::BYTES;
    static constexpr int BYTES = STAGES * STAGE_BYTES > STORED_BYTES ? STAGES * STAGE_BYTES : STORED_BYTES;

    const GemmParams<OPERATION>& gemm;
    const ELEMENT *const memory_a, *const memory_b;  // where the first matrices of a batch begin
    const int row, column;
    unsigned char* const memory;  // stages, then what is stored from there

    // The threads of one tile wait for each other. Of several tiles in a CTA each is a warp's.
    static __device__ __forceinline__ void synchronize() {
        if constexpr (TILE::WARPS == 1) {
            __syncwarp();
        } else {
            static_assert(CONFIG::TILES == 1, "a CTA has several tiles where each is a warp's");
            __syncthreads();
        }
    }

    __device__ __forceinline__ typename A::Source of_a(int k) const {
        const int rows = gemm.m - row, left = gemm.k - k;
        return {gemm.a_at(row, k), memory_a, gemm.lda, A::K_MAJOR ? rows : left, A::K_MAJOR ? left : rows};
    }
    __device__ __forceinline__ typename B::Source of_b(int k) const {
        const int columns = gemm.n - column, left = gemm.k - k;
        return {gemm.b_at(k, column), memory_b, gemm.ldb, B::K_MAJOR ? columns : left, B::K_MAJOR ? left : columns};
    }

    // Starts the copies of the tile along K with that number.
    __device__ __forceinline__ void stage(int number) const {
        const unsigned to = shared_address(memory) + number % STAGES * STAGE_BYTES;
        A::template stage<TILE::THREADS>(to, of_a(number * TILE::BK), threadIdx.x);
        B::template stage<TILE::THREADS>(to + A::BYTES, of_b(number * TILE::BK), threadIdx.x);
    }

    // Starts the copies of the first tiles along K, as soon as the launch before is over.
    __device__ __forceinline__ void stage_first(int tiles_k) const {
        const unsigned to = shared_address(memory);
        if constexpr (CONFIG::PREPARES) {
            A::template prepare<TILE::THREADS>(to, of_a(0), threadIdx.x);
            B::template prepare<TILE::THREADS>(to + A::BYTES, of_b(0), threadIdx.x);
        }
        wait_for_previous_launch();
        if constexpr (STAGES == 1) {
            if (tiles_k > 0) {  // operands without elements may have no memory
                A::template start<TILE::THREADS, CONFIG::PREPARES>(to, of_a(0), threadIdx.x);
                B::template start<TILE::THREADS, CONFIG::PREPARES>(to + A::BYTES, of_b(0), threadIdx.x);
            }
            cp_async_commit_group();
        } else {
#pragma unroll 1
            for (int ahead = 0; ahead < STAGES; ++ahead) {  // a short K is on its way as a whole
                if (ahead < tiles_k) stage(ahead);
                cp_async_commit_group();
            }
        }
    }

    __device__ __forceinline__ void multiply(ACCUMULATORS& accumulators) const {
        const LineFragments<A, true, ACCESS::A> fragments_a(gemm.a_at(row, 0), gemm.lda, TILE::warp_row());
        const LineFragments<B, false, ACCESS::B> fragments_b(gemm.b_at(0, column), gemm.ldb, TILE::warp_column());
        const int tiles_k = tiles_along(gemm.k, TILE::BK);
        accumulators.zero();
        stage_first(tiles_k);
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
                for (int i = 0; i < fragments.TILES16_A; ++i) fragments_a.load(fragments.a[i], at, i, k_block);
#pragma unroll
                for (int i = 0; i < fragments.TILES16_B; ++i) {
                    unsigned words[4];
                    fragments_b.load(words, at + A::BYTES, i, k_block);
#pragma unroll
                    for (int word = 0; word < 4; ++word) fragments.b[2 * i + word / 2][word % 2] = words[word];
                }
                accumulators.multiply(fragments);
            }
        }
        synchronize();
    }

    __device__ __forceinline__ void store(const ACCUMULATORS& accumulators) const {
        const LINES lines(shared_address(memory), gemm.d + row * gemm.ldd + column, gemm.ldd, gemm.m - row,
                          gemm.n - column);
#pragma unroll
        for (int i = 0; i < accumulators.ROWS; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                put_row(lines, accumulators.at[i], half, TILE::warp_row() + 16 * i + 8 * half + threadIdx.x % 32 / 4);
        if constexpr (!CONFIG::STORES_REGISTERS) {
            synchronize();
            lines.template store<TILE::THREADS>(threadIdx.x);
        }
    }

  private:
    // Computes elements of D of half `half` of a row of fragments, which row `r` of the tile has, and puts them where
    // lines are stored from; or into D. Two at a time if D's alignment allows, of which the second may lie outside it.
    __device__ __forceinline__ void put_row(
        const LINES& lines,
        const typename OPERATION::REGISTER (&fragments)[ACCUMULATORS::COLUMNS][OPERATION::C_REGISTERS], int half,
        int r) const {
        constexpr int SIZE = sizeof(OUT), COLUMNS = ACCUMULATORS::COLUMNS, WIDTH = ACCESS::D > SIZE ? 2 : 1;
        const int first = TILE::warp_column() + threadIdx.x % 4 * 2, left = r < lines.rows ? lines.columns - first : 0;
        OUT source[COLUMNS][2];
        if (gemm.beta != typename OPERATION::SCALE(0)) {
            const OUT* const line = gemm.c + ((row + r) * gemm.ldc + column + first);
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (8 * j + e < left) source[j][e] = line[8 * j + e];
        }
        const unsigned to = lines.row(r) + SIZE * first;
        OUT* const line = lines.origin + r * lines.ldd + first;
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            const auto pair = pair_of<ACC_ELEMENT>(fragments[j], half);
#pragma unroll
            for (int e = 0; e < 2; e += WIDTH) {
                const int at = 8 * j + e, inside = left - at;
                if (GemmParams<OPERATION>::EPILOGUE::FUSED && inside <= 0) continue;
                ACC_ELEMENT values[WIDTH];
#pragma unroll
                for (int i = 0; i < WIDTH; ++i) values[i] = pair.elements[e + i];
                Vector<OUT, WIDTH> result;
                elements_of_d(values, source[j] + e, result.elements, gemm, row + r, column + first + at, inside);
                if (inside <= 0) continue;
                if constexpr (!CONFIG::STORES_REGISTERS) {
                    st_shared(to + SIZE * at, *reinterpret_cast<const Packet<sizeof(result)>*>(&result));
                } else if (inside >= WIDTH) {
                    *reinterpret_cast<Vector<OUT, WIDTH>*>(line + at) = result;
                } else {
                    line[at] = result.elements[0];
                }
            }
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
    let_next_launch_start();
    const unsigned number = blockIdx.x * CONFIG::TILES + threadIdx.y;
    if (CONFIG::TILES > 1 && number >= params.tiles) return wait_for_previous_launch();
    const unsigned tiles_m = tiles_along(params.gemm.m, CONFIG::TILE::BM);
    unsigned matrix = CONFIG::BATCHED ? number : 0, of_matrix = CONFIG::BATCHED ? 0 : number;
    if constexpr (CONFIG::BATCHED) {
        const unsigned tiles = tiles_m * tiles_along(params.gemm.n, CONFIG::TILE::BN);
        if (tiles > 1) {  // a division takes dozens of instructions
            matrix = number / tiles;
            of_matrix = number % tiles;
        }
    }
    const GemmParams<OPERATION> gemm = matrix_of_batch<CONFIG::BATCHED>(params.gemm, params.strides, matrix);
    unsigned row = of_matrix, column = 0;
    if (row >= tiles_m) {
        column = row / tiles_m;
        row %= tiles_m;
    }
    const TILE tile{gemm,
                    params.gemm.a,
                    params.gemm.b,
                    int(row * CONFIG::TILE::BM),
                    int(column * CONFIG::TILE::BN),
                    memory + threadIdx.y * TILE::BYTES};
    typename TILE::ACCUMULATORS accumulators;
    tile.multiply(accumulators);
    tile.store(accumulators);
}

}  // namespace warptile
