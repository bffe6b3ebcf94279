// D = beta * C, or an epilogue of that: what is left of a GEMM whose K or alpha is zero. A and B are no parameters:
// they are never read.
#pragma once

#include "epilogue/fused.cuh"
#include "epilogue/operands.cuh"

namespace warptile {

// Without C, beta is zero and D becomes zero.
template <typename CONFIG>
struct AddendParams : EpilogueOf<CONFIG>::type {
    using EPILOGUE = typename EpilogueOf<CONFIG>::type;
    const typename CONFIG::OUT* c;
    typename CONFIG::OUT* d;
    int m, n, batch;
    long long ldc, ldd, batch_stride_c, batch_stride_d;
    typename CONFIG::SCALE beta;
};

// Each thread takes every (threads of the grid)-th group of WIDTH neighbours in a row of D. ALIGNED: groups of D begin
// at multiples of their size in bytes.
template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::THREADS) addend(const __grid_constant__ AddendParams<CONFIG> params) {
    using OUT = typename CONFIG::OUT;
    using SCALE = typename CONFIG::SCALE;
    constexpr int WIDTH = CONFIG::WIDTH;
    const int m = params.m, n = params.n, groups_of_row = (n + WIDTH - 1) / WIDTH;
    const long long groups = static_cast<long long>(m) * groups_of_row * params.batch;
    const long long step = static_cast<long long>(gridDim.x) * CONFIG::THREADS;
    for (long long i = static_cast<long long>(blockIdx.x) * CONFIG::THREADS + threadIdx.x; i < groups; i += step) {
        const int column = static_cast<int>(i % groups_of_row) * WIDTH, inside = min(WIDTH, n - column);
        const long long row = i / groups_of_row % m, matrix = i / groups_of_row / m;
        const OUT* from = params.c + (matrix * params.batch_stride_c + row * params.ldc + column);
        OUT* to = params.d + (matrix * params.batch_stride_d + row * params.ldd + column);
        EpilogueVector<OUT, WIDTH> result;
        if constexpr (AddendParams<CONFIG>::EPILOGUE::FUSED) {
            using COMPUTE = typename AddendParams<CONFIG>::EPILOGUE::COMPUTE;
            auto epilogue = static_cast<const typename AddendParams<CONFIG>::EPILOGUE&>(params);
            epilogue.select_matrix(params, matrix);
            COMPUTE sums[WIDTH];
#pragma unroll
            for (int j = 0; j < WIDTH; ++j)
                sums[j] = static_cast<COMPUTE>(
                    scaled<SCALE, CONFIG::SATURATED>(SCALE(0), SCALE(0), params.beta, from + (j < inside ? j : 0)));
            NoneKept kept;
            epilogue.apply(sums, 1, epilogue.template load<WIDTH>(row, column, inside), kept, result.elements, row,
                           column, inside);
        } else {
#pragma unroll
            for (int j = 0; j < WIDTH; ++j)
                result.elements[j] =
                    scaled<OUT, CONFIG::SATURATED>(SCALE(0), SCALE(0), params.beta, from + (j < inside ? j : 0));
        }
        if (CONFIG::ALIGNED && inside == WIDTH) {
            *reinterpret_cast<EpilogueVector<OUT, WIDTH>*>(to) = result;
        } else {
#pragma unroll
            for (int j = 0; j < WIDTH; ++j)
                if (j < inside) to[j] = result.elements[j];
        }
    }
}

}  // namespace warptile
