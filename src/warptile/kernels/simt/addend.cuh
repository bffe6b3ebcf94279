// D = beta * C, or an epilogue of that: what is left of a GEMM whose K or alpha is zero. A and B are no parameters:
// they are never read.
#pragma once

#include "epilogue/fused.cuh"

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

// Neighbouring threads compute neighbours in a row of D; each takes every (threads of the grid)-th element.
template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::THREADS) addend(const __grid_constant__ AddendParams<CONFIG> params) {
    using OUT = typename CONFIG::OUT;
    using SCALE = typename CONFIG::SCALE;
    const int m = params.m, n = params.n;
    const long long elements = static_cast<long long>(m) * n * params.batch;
    const long long step = static_cast<long long>(gridDim.x) * CONFIG::THREADS;
    for (long long i = static_cast<long long>(blockIdx.x) * CONFIG::THREADS + threadIdx.x; i < elements; i += step) {
        const long long column = i % n, row = i / n % m, matrix = i / n / m;
        const OUT* from = params.c + (matrix * params.batch_stride_c + row * params.ldc + column);
        OUT* to = params.d + (matrix * params.batch_stride_d + row * params.ldd + column);
        if constexpr (AddendParams<CONFIG>::EPILOGUE::FUSED) {
            using COMPUTE = typename AddendParams<CONFIG>::EPILOGUE::COMPUTE;
            auto epilogue = static_cast<const typename AddendParams<CONFIG>::EPILOGUE&>(params);
            epilogue.select_matrix(params, matrix);
            const COMPUTE sum[] = {
                static_cast<COMPUTE>(scaled<SCALE, CONFIG::SATURATED>(SCALE(0), SCALE(0), params.beta, from))};
            OUT result[1];
            epilogue.apply(sum, 1, epilogue.template load<1>(row, column, 1), result, row, column, 1);
            *to = result[0];
        } else {
            *to = scaled<OUT, CONFIG::SATURATED>(SCALE(0), SCALE(0), params.beta, from);
        }
    }
}

}  // namespace warptile
