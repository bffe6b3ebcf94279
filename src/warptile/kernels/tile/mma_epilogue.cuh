// From accumulators to D: a row of fragments at a time through shared memory, then in vectors along D's rows.
#pragma once

#include "tile/mma_fragments.cuh"
#include "tile/vector.cuh"

namespace warptile {

// The rows of a warp tile that slabs loaded together make, on their way out. Lanes write the pairs of eight rows at
// once, four pairs a row: eight elements of nothing after each row send the rows to different banks.
template <typename OPERATION, typename TILE>
struct __align__(128) MmaPatch {
    using PLACEMENT_A = Placement<sizeof(typename OPERATION::ELEMENT), !OPERATION::A_COLUMN_MAJOR>;
    using PLACEMENT_B = Placement<sizeof(typename OPERATION::ELEMENT), OPERATION::B_COLUMN_MAJOR>;
    static constexpr int SLABS = PLACEMENT_A::SLABS, ROWS = 16 * SLABS, STRIDE = TILE::WN + 8;
    using SUM = typename OPERATION::SUM;
    SUM sums[ROWS * STRIDE];

    // Takes over the fragment in row `slab` of fragments and column `j`.
    __device__ __forceinline__ void put(const typename OPERATION::REGISTER (&c)[OPERATION::C_REGISTERS], int slab, int j) {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            Vector<SUM, 2> pair;
            if constexpr (OPERATION::C_REGISTERS == 2) {
                *reinterpret_cast<unsigned*>(&pair) = c[half];
            } else {
                pair.elements[0] = c[2 * half];
                pair.elements[1] = c[2 * half + 1];
            }
            SUM* row = sums + PLACEMENT_A::at(slab, half, g) * STRIDE;
            if constexpr (PLACEMENT_B::NEIGHBOURS) {
                *reinterpret_cast<Vector<SUM, 2>*>(row + PLACEMENT_B::at(j / 2, j % 2, 2 * t)) = pair;
            } else {
                row[PLACEMENT_B::at(j / 2, j % 2, 2 * t)] = pair.elements[0];
                row[PLACEMENT_B::at(j / 2, j % 2, 2 * t + 1)] = pair.elements[1];
            }
        }
    }
};

// WIDTH sums of a patch. Where they take two reads, vectors of neighbouring lanes lie 32 bytes apart: every other four
// lanes read their second half first, so that eight lanes together meet all banks.
template <int WIDTH, typename SUM>
__device__ __forceinline__ Vector<SUM, WIDTH> read_vector(const SUM* from) {
    if constexpr (WIDTH * sizeof(SUM) <= 16) {
        return *reinterpret_cast<const Vector<SUM, WIDTH>*>(from);
    } else {
        using HALF = Vector<SUM, WIDTH / 2>;
        static_assert(sizeof(HALF) == 16, "at most two reads of 16 bytes");
        const auto* halves = reinterpret_cast<const HALF*>(from);
        const int first = threadIdx.x / 4 % 2;
        const HALF one = halves[first], other = halves[1 - first];
        Vector<SUM, WIDTH> sums;
#pragma unroll
        for (int i = 0; i < WIDTH / 2; ++i) {
            sums.elements[i] = first ? other.elements[i] : one.elements[i];
            sums.elements[WIDTH / 2 + i] = first ? one.elements[i] : other.elements[i];
        }
        return sums;
    }
}

// Stores the warp's tile where the block tile starts at (row, column) of D, up to WIDTH elements in one access. The
// patches lie where the stages were: no warp may still be reading those.
template <int WIDTH, typename OPERATION, typename TILE>
__device__ __forceinline__ void store_tile(const MmaAccumulators<OPERATION, TILE>& accumulators,
                                           MmaPatch<OPERATION, TILE>* patches, const Gemm<OPERATION>& gemm, int row,
                                           int column) {
    using PATCH = MmaPatch<OPERATION, TILE>;
    constexpr int PER_ROW = TILE::WN / WIDTH;
    static_assert(TILE::WN % WIDTH == 0, "a row of a warp tile is a whole number of vectors");
    PATCH& patch = patches[threadIdx.x / 32];
    const int lane = threadIdx.x % 32;
    const int first_column = column + TILE::warp_column(), columns = gemm.n - first_column;

#pragma unroll
    for (int i = 0; i < accumulators.ROWS; i += PATCH::SLABS) {
#pragma unroll
        for (int slab = 0; slab < PATCH::SLABS; ++slab)
#pragma unroll
            for (int j = 0; j < accumulators.COLUMNS; ++j) patch.put(accumulators.at[i + slab][j], slab, j);
        __syncwarp();
        const int first_row = row + TILE::warp_row() + 16 * i, rows = gemm.m - first_row;
#pragma unroll 4
        for (int index = lane; index < PATCH::ROWS * PER_ROW; index += 32) {
            const int r = index / PER_ROW, c = index % PER_ROW * WIDTH;
            const auto* from = patch.sums + r * PATCH::STRIDE + c;
            if (r < rows && c + WIDTH <= columns) {
                store_vector(read_vector<WIDTH>(from), gemm, first_row + r, first_column + c);
            } else if (r < rows) {
                for (int e = 0; c + e < columns; ++e)
                    store_vector(read_vector<1>(from + e), gemm, first_row + r, first_column + c + e);
            }
        }
        __syncwarp();
    }
}

}  // namespace warptile
