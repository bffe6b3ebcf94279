// wmma-naive: one warp computes one fragment of D and reads its operands straight from global memory.
#pragma once

#include "tile/wmma_epilogue.cuh"

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
template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::TILE::THREADS)
    wmma_naive(const __grid_constant__ GemmParams<typename CONFIG::OPERATION> params) {
    using OPERATION = typename CONFIG::OPERATION;
    using TILE = typename CONFIG::TILE;
    const GemmParams<OPERATION> gemm = params.values();
    static_assert(TILE::WM == OPERATION::FM && TILE::WN == OPERATION::FN && TILE::BK == OPERATION::K_BLOCK,
                  "a warp owns one fragment");
    using WARP_TILE = Tile<TILE::WM, TILE::WN, TILE::BK, TILE::WM, TILE::WN>;
    __shared__ BlockMemory<OPERATION, WARP_TILE, OPERATION::PAD_UNIT> memory[TILE::WARPS];
    auto& buffer = memory[threadIdx.x / 32];
    auto& ragged = buffer.stages[0];

    const unsigned tiles_n = tiles_along(gemm.n, TILE::BN);
    const int row = blockIdx.x / tiles_n * TILE::BM + TILE::warp_row();
    const int column = blockIdx.x % tiles_n * TILE::BN + TILE::warp_column();
    const int rows = gemm.m - row, columns = gemm.n - column;
    if (rows <= 0 || columns <= 0) return;

    typename OPERATION::A a_fragment;
    typename OPERATION::B b_fragment;
    typename OPERATION::C accumulator;
    wmma::fill_fragment(accumulator, static_cast<typename OPERATION::ACCUMULATOR>(0));

    int k_offset = 0;
    const bool whole = rows >= OPERATION::FM && columns >= OPERATION::FN;
    if (whole && legal_for_wmma(gemm.a, gemm.lda) && legal_for_wmma(gemm.b, gemm.ldb)) {
        for (; gemm.k - k_offset >= OPERATION::K_BLOCK; k_offset += OPERATION::K_BLOCK) {
            load_fragment<OPERATION>(a_fragment, gemm.a_at(row, k_offset), gemm.lda);
            load_fragment<OPERATION>(b_fragment, gemm.b_at(k_offset, column), gemm.ldb);
            multiply_fragments<OPERATION>(accumulator, a_fragment, b_fragment);
        }
    }
    // What is left is ragged or not aligned for wmma: a buffer of the warp's own gives it whole, aligned fragments.
    for (; k_offset < gemm.k; k_offset += OPERATION::K_BLOCK) {
        constexpr bool COLUMN_MAJOR = OPERATION::B_COLUMN_MAJOR;
        const int left = gemm.k - k_offset;
        copy_ragged(ragged.a, gemm.a_at(row, k_offset), gemm.lda, rows, left);
        copy_ragged(ragged.b, gemm.b_at(k_offset, column), gemm.ldb, COLUMN_MAJOR ? columns : left,
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
