// wmma-naive: one warp computes one fragment of D and reads its operands straight from global memory.
#pragma once

#include "tile/epilogue.cuh"

namespace warptile {

// Copies a rectangle of which `rows` x `columns` units are inside the matrix into a tile of the warp's own.
template <typename TILE>
__device__ __forceinline__ void copy_ragged(TILE& tile, const typename TILE::ELEMENT* origin, long long ld, int rows,
                                            int columns) {
    for (int index = threadIdx.x % 32; index < TILE::ROWS * TILE::COLUMNS; index += 32) {
        const int i = index / TILE::COLUMNS, j = index % TILE::COLUMNS;
        const bool inside = i < rows && j < columns;
        tile.units[i * TILE::STRIDE + j] = inside ? origin[i * ld + j] : typename TILE::ELEMENT{};
    }
}

// A block is TILE::WARPS warps that share nothing; a warp tile is one fragment, as deep as one fragment.
template <typename OPERATION, typename TILE>
__global__ void __launch_bounds__(TILE::THREADS)
    wmma_naive(const typename OPERATION::ELEMENT* a, const typename OPERATION::ELEMENT* b,
               const typename OPERATION::OUT* c, typename OPERATION::OUT* d, int m, int n, int k, long long lda,
               long long ldb, long long ldc, long long ldd, typename OPERATION::SCALE alpha,
               typename OPERATION::SCALE beta) {
    const Gemm<OPERATION> gemm{a, b, c, d, m, n, k, lda, ldb, ldc, ldd, alpha, beta};
    static_assert(TILE::WM == OPERATION::FM && TILE::WN == OPERATION::FN && TILE::BK == OPERATION::STEP,
                  "a warp owns one fragment");
    using WARP_TILE = Tile<TILE::WM, TILE::WN, TILE::BK, TILE::WM, TILE::WN>;
    __shared__ BlockMemory<OPERATION, WARP_TILE, OPERATION::PAD_UNIT> memory[TILE::WARPS];
    auto& buffer = memory[threadIdx.x / 32];
    auto& ragged = buffer.stages[0];

    const unsigned tiles_n = tiles_along(n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM + TILE::warp_row();
    const int column = blockIdx.x % tiles_n * TILE::BN + TILE::warp_column();
    const int rows = gemm.m - row, columns = gemm.n - column;
    if (rows <= 0 || columns <= 0) return;

    typename OPERATION::A a_fragment;
    typename OPERATION::B b_fragment;
    typename OPERATION::C accumulator;
    wmma::fill_fragment(accumulator, static_cast<typename OPERATION::ACCUMULATOR>(0));

    int depth = 0;
    const bool whole = rows >= OPERATION::FM && columns >= OPERATION::FN;
    if (whole && legal_for_wmma(a, gemm.lda) && legal_for_wmma(b, gemm.ldb)) {
        for (; gemm.k - depth >= OPERATION::STEP; depth += OPERATION::STEP) {
            load_fragment<OPERATION>(a_fragment, gemm.a_at(row, depth), gemm.lda);
            load_fragment<OPERATION>(b_fragment, gemm.b_at(depth, column), gemm.ldb);
            multiply_fragments<OPERATION>(accumulator, a_fragment, b_fragment);
        }
    }
    // What is left is ragged or not aligned for wmma: a buffer of the warp's own gives it whole, aligned fragments.
    for (; depth < gemm.k; depth += OPERATION::STEP) {
        constexpr bool COLUMN_MAJOR = OPERATION::B_COLUMN_MAJOR;
        const int left = gemm.k - depth;
        copy_ragged(ragged.a, gemm.a_at(row, depth), gemm.lda, rows, left);
        copy_ragged(ragged.b, gemm.b_at(depth, column), gemm.ldb, COLUMN_MAJOR ? columns : left,
                    COLUMN_MAJOR ? left : columns);
        __syncwarp();
        load_shared_fragment<OPERATION>(a_fragment, ragged.a.units, ragged.a.STRIDE);
        load_shared_fragment<OPERATION>(b_fragment, ragged.b.units, ragged.b.STRIDE);
        multiply_fragments<OPERATION>(accumulator, a_fragment, b_fragment);
        __syncwarp();
    }
    store_fragment<OPERATION>(accumulator, buffer.patches[0], gemm, row, column);
}

}  // namespace warptile
