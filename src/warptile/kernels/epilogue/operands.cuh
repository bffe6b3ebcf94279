// What an epilogue reads and writes beside A, B, C and D: tensors, numbers, further outputs.
#pragma once

#include "ptx/elements.cuh"
#include "tile/traits.cuh"

namespace warptile {

// Strides along an axis that are known when the kernel is compiled.
inline constexpr int REPEATED = 0, CONTIGUOUS = 1, STRIDED = 2;

template <typename ELEMENT, int COUNT>
struct __align__(COUNT * sizeof(ELEMENT)) EpilogueVector {
    ELEMENT elements[COUNT];
};

// Elements of a tensor that belong to WIDTH neighbours in a row of D: as many, or one for all. Pairs of 16 bits are
// held as words: the compiler would take a register for each of them, and split and join words.
template <typename ELEMENT, int COUNT, bool IN_WORDS = sizeof(ELEMENT) == 2 && COUNT % 2 == 0>
struct EpilogueElements {
    ELEMENT elements[COUNT];

    template <typename COMPUTE>
    __device__ __forceinline__ COMPUTE value(int i) const {
        return static_cast<COMPUTE>(elements[COUNT == 1 ? 0 : i]);
    }
    __device__ __forceinline__ void set(int i, ELEMENT element) { elements[i] = element; }
    template <int TOGETHER>
    __device__ __forceinline__ void set_from(int i, const ELEMENT* from) {
        const auto vector = *reinterpret_cast<const EpilogueVector<ELEMENT, TOGETHER>*>(from);
#pragma unroll
        for (int j = 0; j < TOGETHER; ++j) elements[i + j] = vector.elements[j];
    }
};
template <typename ELEMENT, int COUNT>
struct EpilogueElements<ELEMENT, COUNT, true> {
    unsigned words[COUNT / 2];

    template <typename COMPUTE>
    __device__ __forceinline__ COMPUTE value(int i) const {
        const unsigned word = words[i / 2];
        if constexpr (SAME<ELEMENT, __nv_bfloat16>) return __uint_as_float(i % 2 ? word & 0xffff0000 : word << 16);
        const unsigned short bits = word >> (16 * (i % 2));
        return static_cast<COMPUTE>(*reinterpret_cast<const ELEMENT*>(&bits));
    }
    __device__ __forceinline__ void set(int i, ELEMENT element) {
        const unsigned bits = *reinterpret_cast<const unsigned short*>(&element);
        unsigned& word = words[i / 2];
        word = i % 2 ? (word & 0xffff) | bits << 16 : (word & 0xffff0000) | bits;
    }
    template <int TOGETHER>
    __device__ __forceinline__ void set_from(int i, const ELEMENT* from) {
        const auto vector = *reinterpret_cast<const EpilogueVector<unsigned, TOGETHER / 2>*>(from);
#pragma unroll
        for (int j = 0; j < TOGETHER / 2; ++j) words[i / 2 + j] = vector.elements[j];
    }
};

// Elements that one access moves: of WIDTH neighbours, of `size` bytes each, in rows aligned to `alignment` bytes.
__device__ constexpr int access_width(int width, int size, int alignment) {
    return width * size <= alignment ? width : alignment < size ? 1 : alignment / size;
}

// Brings the line of an address into L2 (PTX ISA, "prefetch").
__device__ __forceinline__ void prefetch_l2(const void* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)));
}

// A tensor that goes with D. ROW and COLUMN say what its strides from one row (column) of D to the next are. With ROWS
// and COLUMNS other than 1 it has one element for each block of so many rows and columns. Rows are aligned to ALIGNMENT
// bytes. The host writes the members in this order (rungs/kernel_spec.py, `epilogue_members`).
template <typename ELEMENT_, int ROW, int COLUMN, int ROWS, int COLUMNS, int ALIGNMENT>
struct EpilogueTensor {
    using ELEMENT = ELEMENT_;
    const ELEMENT* data;
    long long row_stride, column_stride, matrix_stride;

    template <int WIDTH>
    static constexpr int COUNT = COLUMN == REPEATED || (COLUMNS > 1 && COLUMNS % WIDTH == 0) ? 1 : WIDTH;

    __device__ __forceinline__ const ELEMENT* address(int row, int column) const {
        const ELEMENT* found = data;
        if constexpr (ROW == CONTIGUOUS) found += row / ROWS;
        if constexpr (ROW == STRIDED) found += row / ROWS * row_stride;
        if constexpr (COLUMN == CONTIGUOUS) found += column / COLUMNS;
        if constexpr (COLUMN == STRIDED) found += column / COLUMNS * column_stride;
        return found;
    }

    // Brings what belongs to ROWS_HERE x COLUMNS_HERE elements of D from (row, column) on into L2, as far as they lie
    // in D, of m x n; all `threads` call it. What repeats along rows or columns is small, and left out.
    template <int ROWS_HERE, int COLUMNS_HERE>
    __device__ __forceinline__ void prefetch(int row, int column, int m, int n, int thread, int threads) const {
        constexpr bool BY_ROWS = ROW == STRIDED && COLUMN == CONTIGUOUS,
                       BY_COLUMNS = ROW == CONTIGUOUS && COLUMN == STRIDED;
        if constexpr (ROWS == 1 && COLUMNS == 1 && (BY_ROWS || BY_COLUMNS)) {
            constexpr int PER_LINE = 128 / sizeof(ELEMENT);
            constexpr int ALONG = BY_ROWS ? COLUMNS_HERE : ROWS_HERE, ACROSS = BY_ROWS ? ROWS_HERE : COLUMNS_HERE;
            constexpr int LINES = (ALONG + PER_LINE - 1) / PER_LINE;
#pragma unroll 1
            for (int i = thread; i < ACROSS * LINES; i += threads) {
                const int across = i / LINES, along = i % LINES * PER_LINE;
                const int at_row = row + (BY_ROWS ? across : along), at_column = column + (BY_ROWS ? along : across);
                if (at_row < m && at_column < n) prefetch_l2(address(at_row, at_column));
            }
        }
    }

    // Those for the first `inside` of WIDTH elements of D from (row, column) on; `column` is a multiple of WIDTH.
    template <int WIDTH>
    __device__ __forceinline__ EpilogueElements<ELEMENT, COUNT<WIDTH>> load(int row, int column, int inside) const {
        return inside >= WIDTH ? load_all<WIDTH>(row, column) : load_some<WIDTH>(row, column, inside);
    }

    // All WIDTH.
    template <int WIDTH>
    __device__ __forceinline__ EpilogueElements<ELEMENT, COUNT<WIDTH>> load_all(int row, int column) const {
        constexpr int FOUND = COUNT<WIDTH>;
        constexpr int TOGETHER =
            COLUMN == CONTIGUOUS && COLUMNS == 1 ? access_width(FOUND, sizeof(ELEMENT), ALIGNMENT) : 1;
        EpilogueElements<ELEMENT, FOUND> found{};
#pragma unroll
        for (int i = 0; i < FOUND; i += TOGETHER) {
            if constexpr (TOGETHER > 1) {
                found.template set_from<TOGETHER>(i, address(row, column + i));
            } else {
                found.set(i, *address(row, column + i));
            }
        }
        return found;
    }

    // The first `inside`. There is no branch: instead of the others the tensor's first element is loaded.
    template <int WIDTH>
    __device__ __forceinline__ EpilogueElements<ELEMENT, COUNT<WIDTH>> load_some(int row, int column,
                                                                                 int inside) const {
        EpilogueElements<ELEMENT, COUNT<WIDTH>> found{};
#pragma unroll
        for (int i = 0; i < COUNT<WIDTH>; ++i) found.set(i, *(i < inside ? address(row, column + i) : data));
        return found;
    }

    // All of them if WHOLE, else the first `inside`. HAS_ABOVE: those of a row above are known; HAS_LEFT: those of
    // columns to the left. What repeats along rows or columns is taken from there.
    template <int WIDTH, bool WHOLE, bool HAS_ABOVE, bool HAS_LEFT>
    __device__ __forceinline__ EpilogueElements<ELEMENT, COUNT<WIDTH>> load_beside(
        const EpilogueElements<ELEMENT, COUNT<WIDTH>>& above, const EpilogueElements<ELEMENT, COUNT<WIDTH>>& left,
        int row, int column, int inside) const {
        if constexpr (HAS_ABOVE && ROW == REPEATED) {
            return above;
        } else if constexpr (HAS_LEFT && COLUMN == REPEATED) {
            return left;
        } else if constexpr (WHOLE) {
            return load_all<WIDTH>(row, column);
        } else {
            return load_some<WIDTH>(row, column, inside);
        }
    }
};

// A number, the same for all elements.
template <typename NUMBER>
struct __align__(8) EpilogueNumber {
    NUMBER value;
};

// A further output: elements that go with those of D.
template <typename ELEMENT, int ROW, int COLUMN, int ALIGNMENT>
struct EpilogueOutput {
    ELEMENT* data;
    long long row_stride, column_stride, matrix_stride;

    // Stores the first `inside` of WIDTH elements.
    template <int WIDTH>
    __device__ __forceinline__ void store(const ELEMENT (&elements)[WIDTH], int row, int column, int inside) const {
        constexpr int TOGETHER = COLUMN == CONTIGUOUS ? access_width(WIDTH, sizeof(ELEMENT), ALIGNMENT) : 1;
        ELEMENT* to = data + ((ROW == CONTIGUOUS ? row : row * row_stride) +
                              (COLUMN == CONTIGUOUS ? column : column * column_stride));
        if (TOGETHER > 1 && inside >= WIDTH) {
#pragma unroll
            for (int i = 0; i < WIDTH; i += TOGETHER) {
                EpilogueVector<ELEMENT, TOGETHER> vector;
#pragma unroll
                for (int j = 0; j < TOGETHER; ++j) vector.elements[j] = elements[i + j];
                *reinterpret_cast<EpilogueVector<ELEMENT, TOGETHER>*>(to + i) = vector;
            }
        } else {
#pragma unroll
            for (int i = 0; i < WIDTH; ++i)
                if (i < inside) to[COLUMN == CONTIGUOUS ? i : i * column_stride] = elements[i];
        }
    }
};

}  // namespace warptile
