// The sum of partials that ranks have sent: rank 0's first, added in float32 and rounded once.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tile/vector.cuh"

namespace warptile {

// Each rank's partial has `count` elements, in this GPU's memory or in a peer's. An average has the number of ranks as
// divisor.
template <typename CONFIG>
struct RankSumParams {
    const typename CONFIG::PARTIAL* partials[CONFIG::RANKS];
    typename CONFIG::OUT* sum;
    long long count;
    float divisor;
};

// Each thread adds WIDTH neighbours at a time, of which all ranks' are loaded before the first addition.
template <typename CONFIG>
__global__ void __launch_bounds__(CONFIG::THREADS) rank_sum(const __grid_constant__ RankSumParams<CONFIG> params) {
    using PARTIAL = typename CONFIG::PARTIAL;
    using OUT = typename CONFIG::OUT;
    constexpr int RANKS = CONFIG::RANKS, WIDTH = CONFIG::WIDTH;
    const long long step = static_cast<long long>(gridDim.x) * CONFIG::THREADS * WIDTH;
    long long i = (static_cast<long long>(blockIdx.x) * CONFIG::THREADS + threadIdx.x) * WIDTH;
    for (; i < params.count; i += step) {
        Vector<PARTIAL, WIDTH> partials[RANKS];
#pragma unroll
        for (int rank = 0; rank < RANKS; ++rank)
            partials[rank] = *reinterpret_cast<const Vector<PARTIAL, WIDTH>*>(params.partials[rank] + i);
        Vector<OUT, WIDTH> sum;
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) {
            float total = static_cast<float>(partials[0].elements[j]);
#pragma unroll
            for (int rank = 1; rank < RANKS; ++rank) total += static_cast<float>(partials[rank].elements[j]);
            if (params.divisor != 1) total = __fdiv_rn(total, params.divisor);
            sum.elements[j] = static_cast<OUT>(total);
        }
        *reinterpret_cast<Vector<OUT, WIDTH>*>(params.sum + i) = sum;
    }
}

}  // namespace warptile
