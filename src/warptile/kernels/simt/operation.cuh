// What a CUDA-core kernel multiplies.
#pragma once

#include "tile/gemm.cuh"
#include "tile/scale.cuh"

namespace warptile {

// Types and layouts of a CUDA-core kernel's configuration; A is row-major.
template <typename CONFIG>
struct SimtOperation {
    using ELEMENT = typename CONFIG::ELEMENT;
    using ACCUMULATOR = typename CONFIG::ACCUMULATOR;
    using OUT = typename CONFIG::OUT;
    using SCALE = typename Scale<ACCUMULATOR>::type;
    static constexpr bool A_COLUMN_MAJOR = false, B_COLUMN_MAJOR = CONFIG::B_COLUMN_MAJOR;
};

}  // namespace warptile
