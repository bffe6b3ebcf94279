// Reductions of an epilogue: sums, largest and smallest elements of rows and columns of D.
//
// A kernel stores partials, each once and none by atomics, so that results do not depend on the order of CTAs: a number
// for each row of D and each block of columns, or for each column and each block of rows. Those of a block follow each
// other. They are combined when the kernel is complete (warptile/arrays/reductions.py).
#pragma once

#include "epilogue/functions.cuh"

namespace warptile {

struct SumOf {
    template <typename NUMBER>
    static __device__ __forceinline__ NUMBER identity() {
        return NUMBER(0);
    }
    template <typename NUMBER>
    static __device__ __forceinline__ NUMBER of(NUMBER x, NUMBER y) {
        return x + y;
    }
};

struct LargestOf {
    template <typename NUMBER>
    static __device__ __forceinline__ NUMBER identity() {
        return static_cast<NUMBER>(-__longlong_as_double(0x7ff0000000000000ll));
    }
    template <typename NUMBER>
    static __device__ __forceinline__ NUMBER of(NUMBER x, NUMBER y) {
        return larger(x, y);
    }
};

struct SmallestOf {
    template <typename NUMBER>
    static __device__ __forceinline__ NUMBER identity() {
        return static_cast<NUMBER>(__longlong_as_double(0x7ff0000000000000ll));
    }
    template <typename NUMBER>
    static __device__ __forceinline__ NUMBER of(NUMBER x, NUMBER y) {
        return smaller(x, y);
    }
};

// Rows and columns of an accumulator fragment that a warp has two neighbours in a lane of: lanes 4 i to 4 i + 3 have
// eight elements of one row, and lanes i, i + 4, ... eight rows.
inline constexpr int QUAD_BLOCK = 8;

// Where partials go. OVER_COLUMNS: there are numbers for rows, else for columns. IN_QUADS: values come as elements of
// accumulator fragments, by all lanes of a warp at once; a block has QUAD_BLOCK columns (rows). Otherwise a block is
// one element. The host writes the members in this order (`EpilogueSource.members`).
template <typename NUMBER, typename REDUCTION, bool OVER_COLUMNS, bool IN_QUADS>
struct EpiloguePartials {
    NUMBER* data;
    long long line;  // rows (columns) of D
    long long matrix_stride;

    // The partials of WIDTH neighbours in a row of D, the first `inside` of which lie in it.
    template <int WIDTH>
    __device__ __forceinline__ void store(const NUMBER (&values)[WIDTH], int row, int column, int inside) const {
        if constexpr (!IN_QUADS) {
#pragma unroll
            for (int i = 0; i < WIDTH; ++i)
                store_if(i < inside, data + (OVER_COLUMNS ? (column + i) * line + row : row * line + (column + i)),
                         values[i]);
        } else {
            static_assert(WIDTH == 2, "a lane has two neighbours of a fragment");
            const NUMBER nothing = REDUCTION::template identity<NUMBER>();
            const NUMBER first = inside > 0 ? values[0] : nothing, second = inside > 1 ? values[1] : nothing;
            const int lane = threadIdx.x % 32;
            if constexpr (OVER_COLUMNS) {
                const NUMBER found = across<1, 2>(REDUCTION::of(first, second));
                store_if(lane % 4 == 0 && inside > 0, data + (column / QUAD_BLOCK * line + row), found);
            } else {
                const NUMBER left = across<4, 16>(first), right = across<4, 16>(second);
                NUMBER* to = data + (row / QUAD_BLOCK * line + column);
                store_if(lane < 4 && inside > 0, to, left);
                store_if(lane < 4 && inside > 1, to + 1, right);
            }
        }
    }

  private:
    // Predicated, not branched around: a tile's unrolled epilogue has hundreds of these, and ptxas takes minutes over
    // as many basic blocks.
    static __device__ __forceinline__ void store_if(bool wanted, NUMBER* to, NUMBER value) {
        if constexpr (sizeof(NUMBER) == 4) {
            asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.f32 [%1], %2; }" ::"r"(int(wanted)),
                         "l"(to), "f"(value)
                         : "memory");
        } else {
            asm volatile("{ .reg .pred p; setp.ne.u32 p, %0, 0; @p st.global.f64 [%1], %2; }" ::"r"(int(wanted)),
                         "l"(to), "d"(value)
                         : "memory");
        }
    }

    // Combined over lanes whose numbers differ in the bits from FIRST to LAST.
    template <int FIRST, int LAST>
    static __device__ __forceinline__ NUMBER across(NUMBER value) {
#pragma unroll
        for (int apart = FIRST; apart <= LAST; apart *= 2)
            value = REDUCTION::of(value, __shfl_xor_sync(0xffffffff, value, apart));
        return value;
    }
};

}  // namespace warptile
