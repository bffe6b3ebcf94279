// A batch of GEMMs in one launch of CTAs that each compute a tile of D, or a part of K of one.
#pragma once

#include "tile/gemm.cuh"

namespace warptile {

// Storage units from each matrix of a batch to the next: zero where all share one, and for a single GEMM. The host
// writes these members in this order (rungs/batch.py).
struct BatchStrides {
    long long a, b, c, d;
};

// What a CTA computes: a part of K of a tile of D. Parts of a tile follow each other, and so do tiles of a matrix.
template <bool BATCHED>
struct PartOfTile {
    unsigned part, number;  // the tile's number among those of all matrices
    unsigned tile, matrix;  // its number among those of its matrix

    __device__ __forceinline__ PartOfTile(unsigned parts, unsigned tiles_of_matrix)
        : part(blockIdx.x % parts),
          number(blockIdx.x / parts),
          tile(BATCHED ? number % tiles_of_matrix : number),
          matrix(BATCHED ? number / tiles_of_matrix : 0) {}
};

// The GEMM of one matrix of a batch; `first` is that of the first one. Of a single GEMM the members stay in constant
// memory, which takes no registers.
template <bool BATCHED, typename GEMM>
__device__ __forceinline__ GEMM matrix_of_batch(const GEMM& first, const BatchStrides& strides, unsigned matrix) {
    GEMM gemm = first.values();
    if constexpr (BATCHED) {
        gemm.a += matrix * strides.a;
        gemm.b += matrix * strides.b;
        gemm.c += matrix * strides.c;
        gemm.d += matrix * strides.d;
        if constexpr (GEMM::EPILOGUE::FUSED) gemm.select_matrix(first, matrix);
    }
    return gemm;
}

}  // namespace warptile
