// From global to shared memory: one walk over a tile, three ways to copy.
#pragma once

#include "ptx/cp_async.cuh"
#include "tile/wmma_stage.cuh"

namespace warptile {

// One unit at a time, through a register.
template <typename ELEMENT, int>
struct ScalarCopy {
    static constexpr int WIDTH = 1;
    static constexpr int IN_FLIGHT = 8;  // loads issued before the first is stored: each holds a register
    static __device__ __forceinline__ void whole(ELEMENT* shared, const ELEMENT* global) { *shared = *global; }
    static __device__ __forceinline__ void part(ELEMENT* shared, const ELEMENT* global, int valid) {
        *shared = valid > 0 ? *global : ELEMENT{};
    }
};

// WIDTH units in one load and one store, through registers.
template <typename ELEMENT, int WIDTH_>
struct VectorCopy {
    static constexpr int WIDTH = WIDTH_;
    static constexpr int IN_FLIGHT = 8;
    struct __align__(WIDTH * sizeof(ELEMENT)) Vector {
        ELEMENT units[WIDTH];
    };
    static __device__ __forceinline__ void whole(ELEMENT* shared, const ELEMENT* global) {
        *reinterpret_cast<Vector*>(shared) = *reinterpret_cast<const Vector*>(global);
    }
    static __device__ __forceinline__ void part(ELEMENT* shared, const ELEMENT* global, int valid) {
        Vector vector;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) vector.units[i] = i < valid ? global[i] : ELEMENT{};
        *reinterpret_cast<Vector*>(shared) = vector;
    }
};

// WIDTH units by cp.async, bypassing registers. Operands that are aligned to less than its 4 bytes are copied
// synchronously: the barrier that follows every wait makes those visible as well.
template <typename ELEMENT, int WIDTH_>
struct AsyncCopy {
    static constexpr int WIDTH = WIDTH_;
    static constexpr int BYTES = WIDTH * sizeof(ELEMENT);
    static constexpr int IN_FLIGHT = BYTES == 16 ? 64 : 16;
    static __device__ __forceinline__ void whole(ELEMENT* shared, const ELEMENT* global) {
        if constexpr (BYTES >= 4) {
            cp_async<BYTES>(shared, global);
        } else {
            VectorCopy<ELEMENT, WIDTH>::whole(shared, global);
        }
    }
    static __device__ __forceinline__ void part(ELEMENT* shared, const ELEMENT* global, int valid) {
        if constexpr (BYTES >= 4) {
            cp_async_zero_fill<BYTES>(shared, global, valid * static_cast<int>(sizeof(ELEMENT)));
        } else {
            VectorCopy<ELEMENT, WIDTH>::part(shared, global, valid);
        }
    }
};

// Copies the rectangle that starts at `origin` and of which `rows` x `columns` units are inside the matrix; the rest
// of the tile becomes zero. All of the block's THREADS threads take part: neighbours copy neighbouring vectors.
template <typename COPY, int THREADS, bool WHOLE, typename TILE>
__device__ __forceinline__ void stage_rectangle(TILE& tile, const typename TILE::ELEMENT* origin, long long ld,
                                                int rows, int columns) {
    constexpr int WIDTH = COPY::WIDTH, PER_ROW = TILE::COLUMNS / WIDTH, COUNT = TILE::ROWS * PER_ROW;
    static_assert(TILE::COLUMNS % WIDTH == 0, "a row of a tile is a whole number of vectors");
    // The predicated copy stays a rolled loop: unrolled, its predicates would take registers from the mainloop.
#pragma unroll WHOLE ? COPY::IN_FLIGHT : 1
    for (int first = 0; first < COUNT; first += THREADS) {
        const int index = first + static_cast<int>(threadIdx.x);
        if (COUNT % THREADS != 0 && index >= COUNT) break;
        const int row = index / PER_ROW, column = index % PER_ROW * WIDTH;
        auto* shared = tile.units + row * TILE::STRIDE + column;
        const auto* global = origin + row * ld + column;
        if constexpr (WHOLE) {
            COPY::whole(shared, global);
        } else {
            const int valid = row < rows ? min(max(columns - column, 0), WIDTH) : 0;
            COPY::part(shared, global, valid);
        }
    }
}

// The same with the choice made once for the block: tiles inside the matrix carry no predicates.
template <typename COPY, int THREADS, typename TILE>
__device__ __forceinline__ void stage_tile(TILE& tile, const typename TILE::ELEMENT* origin, long long ld, int rows,
                                           int columns) {
    if (rows >= TILE::ROWS && columns >= TILE::COLUMNS) {
        stage_rectangle<COPY, THREADS, true>(tile, origin, ld, rows, columns);
    } else {
        stage_rectangle<COPY, THREADS, false>(tile, origin, ld, rows, columns);
    }
}

// Vectors that the alignment of A, of B and of C and D allows, in units.
template <int A_, int B_, int D_>
struct Widths {
    static constexpr int A = A_, B = B_, D = D_;
};

// Loads K tile [k_offset, k_offset + BK) of the operands of the block tile at (row, column) into `stage`.
template <template <typename, int> class COPY, typename TILE, typename WIDTHS, typename OPERATION, int PAD>
__device__ __forceinline__ void stage_operands(Stage<OPERATION, TILE, PAD>& stage, const GemmParams<OPERATION>& gemm,
                                               int row, int column, int k_offset) {
    using ELEMENT = typename OPERATION::ELEMENT;
    const int rows = gemm.m - row, columns = gemm.n - column, left = gemm.k - k_offset;
    stage_tile<COPY<ELEMENT, WIDTHS::A>, TILE::THREADS>(stage.a, gemm.a_at(row, k_offset), gemm.lda, rows, left);
    stage_tile<COPY<ELEMENT, WIDTHS::B>, TILE::THREADS>(stage.b, gemm.b_at(k_offset, column), gemm.ldb,
                                                        OPERATION::B_COLUMN_MAJOR ? columns : left,
                                                        OPERATION::B_COLUMN_MAJOR ? left : columns);
}

}  // namespace warptile
