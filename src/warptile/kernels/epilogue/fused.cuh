// Where a kernel evaluates the caller's epilogue: between alpha * accumulator + beta * C and the conversion to D's
// type.
//
// A translation unit with an epilogue defines `Epilogue`, written by warptile/epilogue/cuda.py: its members are the
// epilogue's operands, `load` reads those for neighbouring elements of a row of D, `apply` evaluates the expression.
// Where that begins with a factor of the accumulator, and there is no C, alpha is multiplied with the factor.
#pragma once

#include "tile/scale.cuh"

namespace warptile {

// D is alpha * accumulator + beta * C, and nothing else.
struct NoEpilogue {
    static constexpr bool FUSED = false, BLOCK_SCALED = false;
    static constexpr int STAGED = 0, KEPT = 0;
};

// In place of the elements of a further output that whoever evaluates an epilogue stores by itself: there is no such
// output, and the epilogue stores all of them.
struct NoneKept {
    static constexpr bool KEEPS = false;
};

template <typename>
struct Exists {
    using type = void;
};

// The epilogue of an operation or a configuration.
template <typename TYPE, typename = void>
struct EpilogueOf {
    using type = NoEpilogue;
};
template <typename TYPE>
struct EpilogueOf<TYPE, typename Exists<typename TYPE::EPILOGUE>::type> {
    using type = typename TYPE::EPILOGUE;
};

template <typename OPERATION, typename EPILOGUE_>
struct WithEpilogue : OPERATION {
    using EPILOGUE = EPILOGUE_;
};

// How many of WIDTH elements of D from (row, column) on lie inside it.
template <int WIDTH, typename GEMM>
__device__ __forceinline__ int elements_inside(const GEMM& gemm, int row, int column) {
    const int columns = gemm.n - column;
    return row < gemm.m ? (columns < WIDTH ? columns : WIDTH) : 0;
}

// WIDTH neighbours of a row of D from (row, column) on, of which `inside` lie in D, with what the epilogue `loaded` for
// them. `c` points to the same elements of C, and is not touched where beta is zero. A further output goes to `kept`
// instead of memory, unless that is `NoneKept`.
template <int WIDTH, typename GEMM, typename ACCUMULATOR, typename LOADED, typename KEPT>
__device__ __forceinline__ void fused_elements(const ACCUMULATOR (&values)[WIDTH], typename GEMM::SCALE beta,
                                               const typename GEMM::OUT* c, const LOADED& loaded, KEPT& kept,
                                               typename GEMM::OUT (&result)[WIDTH], const GEMM& gemm, int row,
                                               int column, int inside) {
    using COMPUTE = typename GEMM::EPILOGUE::COMPUTE;
    constexpr bool SATURATED = SATURATES<typename GEMM::ACCUMULATOR>;
    COMPUTE sums[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
        if constexpr (GEMM::EPILOGUE::MULTIPLIES_BY_ALPHA) {
            sums[i] = static_cast<COMPUTE>(values[i]);
        } else {
            sums[i] = static_cast<COMPUTE>(scaled<typename GEMM::SCALE, SATURATED>(values[i], gemm.alpha, beta, c + i));
        }
    }
    gemm.apply(sums, gemm.alpha, loaded, kept, result, row, column, inside);
}

// The same of all kernels, with and without an epilogue.
template <int WIDTH, typename GEMM, typename ACCUMULATOR>
__device__ __forceinline__ void elements_of_d(const ACCUMULATOR (&values)[WIDTH], const typename GEMM::OUT* c,
                                              typename GEMM::OUT (&result)[WIDTH], const GEMM& gemm, int row,
                                              int column, int inside = WIDTH) {
    if constexpr (GEMM::EPILOGUE::FUSED) {
        NoneKept kept;
        fused_elements(values, gemm.beta, c, gemm.template load<WIDTH>(row, column, inside), kept, result, gemm, row,
                       column, inside);
    } else {
#pragma unroll
        for (int i = 0; i < WIDTH; ++i)
            result[i] = scaled<typename GEMM::OUT, SATURATES<typename GEMM::ACCUMULATOR>>(values[i], gemm.alpha,
                                                                                          gemm.beta, c + i);
    }
}

}  // namespace warptile
