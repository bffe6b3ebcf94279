// From accumulators to D a row of fragments at a time, in vectors as wide as D's alignment allows.
#pragma once

#include "tile/wmma_fragments.cuh"
#include "tile/vector.cuh"

namespace warptile {

// Stores the warp's tile where the block tile starts at (row, column). Each warp writes one row of fragments (FM x WN)
// as a matrix to its patch, then reads it back so that neighbouring lanes write neighbouring vectors of a row of D.
// The patches reuse the memory of the stages: no warp may still be reading those.
template <int WIDTH, typename OPERATION, typename TILE>
__device__ __forceinline__ void store_rows(const Accumulators<OPERATION, TILE>& accumulators,
                                           RowPatch<OPERATION, TILE::WN>* patches, const GemmParams<OPERATION>& gemm,
                                           int row, int column) {
    using PATCH = RowPatch<OPERATION, TILE::WN>;
    constexpr int STRIDE = PATCH::STRIDE, PER_ROW = TILE::WN / WIDTH;
    static_assert(TILE::WN % WIDTH == 0, "a row of a warp tile is a whole number of vectors");
    auto* patch = patches[threadIdx.x / 32].elements;
    const int lane = threadIdx.x % 32, columns = gemm.n - column - TILE::warp_column();
    const bool whole = gemm.m - row >= TILE::BM && gemm.n - column >= TILE::BN;

#pragma unroll
    for (int i = 0; i < accumulators.ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < accumulators.COLUMNS; ++j)
            wmma::store_matrix_sync(patch + PATCH::skewed(j * OPERATION::FN), accumulators.at[i][j], STRIDE,
                                    wmma::mem_row_major);
        __syncwarp();
        const int first_row = row + TILE::warp_row() + i * OPERATION::FM, rows = gemm.m - first_row;
        const int first_column = column + TILE::warp_column();
        if (whole) {
#pragma unroll 4
            for (int index = lane; index < OPERATION::FM * PER_ROW; index += 32) {
                const int patch_row = index / PER_ROW, patch_column = index % PER_ROW * WIDTH;
                store_vector<WIDTH>(patch + patch_row * STRIDE + PATCH::skewed(patch_column), gemm,
                                    first_row + patch_row, first_column + patch_column);
            }
        } else {
#pragma unroll 1
            for (int index = lane; index < OPERATION::FM * TILE::WN; index += 32) {
                const int patch_row = index / TILE::WN, patch_column = index % TILE::WN;
                if (patch_row < rows && patch_column < columns)
                    store_vector<1>(patch + patch_row * STRIDE + PATCH::skewed(patch_column), gemm,
                                    first_row + patch_row, first_column + patch_column);
            }
        }
        __syncwarp();
    }
}

}  // namespace warptile
