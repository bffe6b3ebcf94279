// What the Hopper kernels take.
#pragma once

#include "ptx/cp_async_bulk_tensor.cuh"
#include "tile/gemm.cuh"

namespace warptile {

// TMA loads A and B; the epilogue stores from registers.
template <typename OPERATION>
struct WgmmaParams {
    GemmParams<OPERATION> gemm;
    TensorMap map_a, map_b;
};

// TMA loads A and B and stores D.
template <typename OPERATION>
struct WgmmaStoreParams {
    GemmParams<OPERATION> gemm;
    TensorMap map_a, map_b, map_d;
};

// The same, and where CTAs that share the last `stream_k_tiles` tiles leave partial accumulators, with a flag for each.
template <typename OPERATION>
struct WgmmaStreamKParams {
    GemmParams<OPERATION> gemm;
    TensorMap map_a, map_b, map_d;
    unsigned char* partial_accumulators;
    unsigned* flags;
    int stream_k_tiles;
};

}  // namespace warptile
