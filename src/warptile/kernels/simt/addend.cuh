// D = beta * C: what is left of a GEMM whose K or alpha is zero. A and B are no parameters: they are never read.
#pragma once

#include "tile/scale.cuh"

namespace warptile {

// Without C, beta is zero and D becomes zero.
template <typename CONFIG>
struct AddendParams {
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
    const auto [c, d, m, n, batch, ldc, ldd, batch_stride_c, batch_stride_d, beta] = params;
    const long long elements = static_cast<long long>(m) * n * batch;
    const long long step = static_cast<long long>(gridDim.x) * CONFIG::THREADS;
    for (long long i = static_cast<long long>(blockIdx.x) * CONFIG::THREADS + threadIdx.x; i < elements; i += step) {
        const long long column = i % n, row = i / n % m, matrix = i / n / m;
        const OUT* from = c + (matrix * batch_stride_c + row * ldc + column);
        d[matrix * batch_stride_d + row * ldd + column] =
            scaled<OUT, CONFIG::SATURATED>(SCALE(0), SCALE(0), beta, from);
    }
}

}  // namespace warptile
