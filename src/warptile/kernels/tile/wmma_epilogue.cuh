// From accumulators to D: alpha, beta, the conversion to D's type and the ragged edges.
#pragma once

#include "tile/wmma_fragments.cuh"

namespace warptile {

// Whether wmma may load or store a matrix of this base and leading dimension: CUDA C++ Programming Guide, "Warp
// matrix functions": a base of 256 bits, rows a multiple of 16 bytes apart.
template <typename ELEMENT>
__device__ __forceinline__ bool legal_for_wmma(const ELEMENT* base, long long ld) {
    return reinterpret_cast<unsigned long long>(base) % 32 == 0 && ld * sizeof(ELEMENT) % 16 == 0;
}

// Stores one accumulator fragment, of which `rows` x `columns` elements are inside D, by way of the warp's patch:
// the layout of a fragment is unspecified, so it is written out as a matrix and read back element by element.
template <typename OPERATION>
__device__ __forceinline__ void store_through_patch(const typename OPERATION::C& fragment, Patch<OPERATION>& patch,
                                                    const GemmParams<OPERATION>& gemm, int row, int column, int rows,
                                                    int columns) {
    constexpr int STRIDE = Patch<OPERATION>::STRIDE, FM = OPERATION::FM, FN = OPERATION::FN;
    wmma::store_matrix_sync(patch.elements, fragment, STRIDE, wmma::mem_row_major);
    __syncwarp();
#pragma unroll 1
    for (int index = threadIdx.x % 32; index < FM * FN; index += 32) {
        const int i = index / FN, j = index % FN;
        if (i < rows && j < columns) {
            const long long to = row + i, at = column + j;
            const typename OPERATION::ACCUMULATOR value[] = {patch.elements[i * STRIDE + j]};
            typename OPERATION::OUT result[1];
            elements_of_d(value, gemm.c + (to * gemm.ldc + at), result, gemm, row + i, column + j);
            gemm.d[to * gemm.ldd + at] = result[0];
        }
    }
    __syncwarp();
}

// The same for a whole fragment whose type is D's, with one wmma store (and one wmma load of C).
template <typename OPERATION>
__device__ __forceinline__ void store_directly(typename OPERATION::C& fragment, const GemmParams<OPERATION>& gemm,
                                               int row, int column) {
    using ACCUMULATOR = typename OPERATION::ACCUMULATOR;
    using SCALE = typename OPERATION::SCALE;
    typename OPERATION::C source;
    wmma::fill_fragment(source, static_cast<ACCUMULATOR>(0));
    if (gemm.beta != SCALE(0))
        wmma::load_matrix_sync(source, gemm.c + (row * gemm.ldc + column), gemm.ldc, wmma::mem_row_major);
#pragma unroll
    for (int i = 0; i < fragment.num_elements; ++i)
        fragment.x[i] = static_cast<ACCUMULATOR>(gemm.alpha * static_cast<SCALE>(fragment.x[i]) +
                                                 gemm.beta * static_cast<SCALE>(source.x[i]));
    wmma::store_matrix_sync(gemm.d + (row * gemm.ldd + column), fragment, gemm.ldd, wmma::mem_row_major);
}

// Stores one fragment at (row, column) of D.
template <typename OPERATION>
__device__ __forceinline__ void store_fragment(typename OPERATION::C& fragment, Patch<OPERATION>& patch,
                                               const GemmParams<OPERATION>& gemm, int row, int column) {
    const int rows = gemm.m - row, columns = gemm.n - column;
    if (rows <= 0 || columns <= 0) return;
    // The elements of a fragment have no known place, so an epilogue cannot be evaluated there.
    if constexpr (SAME<typename OPERATION::ACCUMULATOR, typename OPERATION::OUT> &&
                  !GemmParams<OPERATION>::EPILOGUE::FUSED) {
        // A C that is one row for all rows of D has a stride of 0, less than a fragment's width, which wmma.load needs.
        const bool c_legal =
            gemm.beta == typename OPERATION::SCALE(0) || (gemm.ldc != 0 && legal_for_wmma(gemm.c, gemm.ldc));
        if (rows >= OPERATION::FM && columns >= OPERATION::FN && legal_for_wmma(gemm.d, gemm.ldd) && c_legal) {
            store_directly<OPERATION>(fragment, gemm, row, column);
            return;
        }
    }
    store_through_patch<OPERATION>(fragment, patch, gemm, row, column, rows, columns);
}

// Stores the warp's tile, fragment by fragment, where the block tile starts at (row, column). The patches reuse the
// memory of the stages: no warp may still be reading those.
template <typename OPERATION, typename TILE>
__device__ __forceinline__ void store_accumulators(Accumulators<OPERATION, TILE>& accumulators,
                                                   Patch<OPERATION>* patches, const GemmParams<OPERATION>& gemm,
                                                   int row, int column) {
#pragma unroll
    for (int i = 0; i < accumulators.ROWS; ++i)
#pragma unroll
        for (int j = 0; j < accumulators.COLUMNS; ++j)
            store_fragment<OPERATION>(accumulators.at[i][j], patches[threadIdx.x / 32], gemm,
                                      row + TILE::warp_row() + i * OPERATION::FM,
                                      column + TILE::warp_column() + j * OPERATION::FN);
}

}  // namespace warptile
