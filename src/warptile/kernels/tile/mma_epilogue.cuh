// From accumulators to D: a row of fragments at a time through shared memory, then in vectors along D's rows.
#pragma once

#include "tile/mma_fragments.cuh"
#include "tile/vector.cuh"

namespace warptile {

// The two neighbours that a lane holds of half `half` of a fragment.
template <typename ACC_ELEMENT, typename REGISTER, int REGISTERS>
__device__ __forceinline__ Vector<ACC_ELEMENT, 2> pair_of(const REGISTER (&c)[REGISTERS], int half) {
    Vector<ACC_ELEMENT, 2> pair;
    if constexpr (REGISTERS == 2) {  // halves, two to a register
        *reinterpret_cast<unsigned*>(&pair) = c[half];
    } else {
        pair.elements[0] = c[2 * half];
        pair.elements[1] = c[2 * half + 1];
    }
    return pair;
}

// The rows of a warp tile that 16-tiles loaded together make, in the epilogue. Lanes write the pairs of eight rows at
// once, four pairs a row: eight elements of padding after each row send the rows to different banks. The placements are
// those with which the fragments were loaded.
template <typename OPERATION, typename TILE,
          typename PLACEMENT_A_ = Placement<sizeof(typename OPERATION::ELEMENT), !OPERATION::A_COLUMN_MAJOR>,
          typename PLACEMENT_B_ = Placement<sizeof(typename OPERATION::ELEMENT), OPERATION::B_COLUMN_MAJOR>>
struct __align__(128) MmaPatch {
    using PLACEMENT_A = PLACEMENT_A_;
    using PLACEMENT_B = PLACEMENT_B_;
    static constexpr int TILES16 = PLACEMENT_A::TILES16, ROWS = 16 * TILES16, STRIDE = TILE::WN + 8;
    using ACC_ELEMENT = typename OPERATION::ACC_ELEMENT;
    ACC_ELEMENT elements[ROWS * STRIDE];

    // Takes over the fragment in row `tile16` of fragments and column `j`.
    __device__ __forceinline__ void put(const typename OPERATION::REGISTER (&c)[OPERATION::C_REGISTERS], int tile16,
                                        int j) {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const auto pair = pair_of<ACC_ELEMENT>(c, half);
            ACC_ELEMENT* row = elements + PLACEMENT_A::at(tile16, half, g) * STRIDE;
            if constexpr (PLACEMENT_B::NEIGHBOURS) {
                *reinterpret_cast<Vector<ACC_ELEMENT, 2>*>(row + PLACEMENT_B::at(j / 2, j % 2, 2 * t)) = pair;
            } else {
                row[PLACEMENT_B::at(j / 2, j % 2, 2 * t)] = pair.elements[0];
                row[PLACEMENT_B::at(j / 2, j % 2, 2 * t + 1)] = pair.elements[1];
            }
        }
    }
};

// WIDTH elements of a patch. Where they take two reads, vectors of neighbouring lanes lie 32 bytes apart: every other
// four lanes read their second half first, so that eight lanes together use all banks.
template <int WIDTH, typename ACC_ELEMENT>
__device__ __forceinline__ Vector<ACC_ELEMENT, WIDTH> read_vector(const ACC_ELEMENT* from) {
    if constexpr (WIDTH * sizeof(ACC_ELEMENT) <= 16) {
        return *reinterpret_cast<const Vector<ACC_ELEMENT, WIDTH>*>(from);
    } else {
        using HALF = Vector<ACC_ELEMENT, WIDTH / 2>;
        static_assert(sizeof(HALF) == 16, "at most two reads of 16 bytes");
        const auto* halves = reinterpret_cast<const HALF*>(from);
        const int first = threadIdx.x / 4 % 2;
        const HALF one = halves[first], other = halves[1 - first];
        Vector<ACC_ELEMENT, WIDTH> elements;
#pragma unroll
        for (int i = 0; i < WIDTH / 2; ++i) {
            elements.elements[i] = first ? other.elements[i] : one.elements[i];
            elements.elements[WIDTH / 2 + i] = first ? one.elements[i] : other.elements[i];
        }
        return elements;
    }
}

// Whether a warp stores doubles from registers, element by element, instead of through a patch: those of a small tile,
// where latency counts, if the four lanes of a row write whole sectors, or if D is unaligned and no store would be
// wide.
template <int WIDTH, typename OPERATION, typename TILE>
inline constexpr bool STORES_REGISTERS =
    OPERATION::DOUBLE && TILE::WM * TILE::WN <= 256 && (OPERATION::B_COLUMN_MAJOR || WIDTH == 1);

template <typename PATCH, typename OPERATION, typename TILE>
__device__ __forceinline__ void store_registers(const MmaAccumulators<OPERATION, TILE>& accumulators,
                                                const GemmParams<OPERATION>& gemm, int row, int column) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int first_row = row + TILE::warp_row(), first_column = column + TILE::warp_column();
#pragma unroll
    for (int i = 0; i < accumulators.ROWS; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int r = first_row + PATCH::PLACEMENT_A::at(i, half, g);
            if (r >= gemm.m) continue;
#pragma unroll
            for (int j = 0; j < accumulators.COLUMNS; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int c = first_column + PATCH::PLACEMENT_B::at(j / 2, j % 2, 2 * t + e);
                    const Vector<double, 1> one{{accumulators.at[i][j][2 * half + e]}};
                    if (c < gemm.n) store_vector(one, gemm, r, c);
                }
        }
}

// Stores the warp's tile where the block tile starts at (row, column) of D, up to WIDTH elements in one access. The
// patches reuse the memory of the stages: no warp may still be reading those.
template <int WIDTH, int AT_ONCE = 4, typename OPERATION, typename TILE, typename PATCH>
__device__ __forceinline__ void store_tile(const MmaAccumulators<OPERATION, TILE>& accumulators, PATCH* patches,
                                           const GemmParams<OPERATION>& gemm, int row, int column) {
    if constexpr (STORES_REGISTERS<WIDTH, OPERATION, TILE>) {
        store_registers<PATCH>(accumulators, gemm, row, column);
        return;
    }
    constexpr int PER_ROW = TILE::WN / WIDTH;
    static_assert(TILE::WN % WIDTH == 0, "a row of a warp tile is a whole number of vectors");
    PATCH& patch = patches[threadIdx.x / 32];
    const int lane = threadIdx.x % 32;
    const int first_column = column + TILE::warp_column(), columns = gemm.n - first_column;

#pragma unroll
    for (int i = 0; i < accumulators.ROWS; i += PATCH::TILES16) {
#pragma unroll
        for (int tile16 = 0; tile16 < PATCH::TILES16; ++tile16)
#pragma unroll
            for (int j = 0; j < accumulators.COLUMNS; ++j) patch.put(accumulators.at[i + tile16][j], tile16, j);
        __syncwarp();
        const int first_row = row + TILE::warp_row() + 16 * i, rows = gemm.m - first_row;
#pragma unroll AT_ONCE
        for (int index = lane; index < PATCH::ROWS * PER_ROW; index += 32) {
            const int r = index / PER_ROW, c = index % PER_ROW * WIDTH;
            const auto* from = patch.elements + r * PATCH::STRIDE + c;
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
