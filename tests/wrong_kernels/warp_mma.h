// Shared by the mma.sync kernels. One warp computes a 16 x 16 tile of D with k-blocks of 16, as two fragments of 8
// columns.
#pragma once

#include <cuda_fp16.h>

#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared_memory.cuh"

using namespace warptile;

struct alignas(16) Tiles {
    __half a[16][16], b[16][16];
};

// Copies the tiles of A and B at (row, k0) and (k0, column).
__device__ __forceinline__ void fill(Tiles& tiles, const __half* a, const __half* b, int n, int k, int k0) {
    for (int at = threadIdx.x; at < 256; at += 32) {
        const int i = at / 16, j = at % 16;
        tiles.a[i][j] = a[(blockIdx.y * 16 + i) * k + k0 + j];
        tiles.b[i][j] = b[(k0 + i) * n + blockIdx.x * 16 + j];
    }
}

// Loads the fragment of A, and both fragments of B, which is row-major in shared memory.
__device__ __forceinline__ void load_a(unsigned (&registers)[4], const Tiles& tiles) {
    ldmatrix_x4<false>(registers, shared_address(&tiles.a[threadIdx.x % 16][threadIdx.x / 16 * 8]));
}
__device__ __forceinline__ void load_b(unsigned (&registers)[4], const Tiles& tiles) {
    ldmatrix_x4<true>(registers, shared_address(&tiles.b[threadIdx.x % 16][threadIdx.x / 16 * 8]));
}

// Lane 4 g + t holds columns 2 t and 2 t + 1 of rows g and g + 8, of each fragment: f32, or two f16 in a register.
__device__ __forceinline__ void store(float* d, int n, const float (&sum)[2][4]) {
    float* corner = d + (blockIdx.y * 16 + threadIdx.x / 4) * n + blockIdx.x * 16 + threadIdx.x % 4 * 2;
    for (int fragment = 0; fragment < 2; ++fragment)
        for (int i = 0; i < 4; ++i) corner[i / 2 * 8 * n + fragment * 8 + i % 2] = sum[fragment][i];
}
__device__ __forceinline__ void store(float* d, int n, const unsigned (&sum)[2][2]) {
    float wide[2][4];
    for (int i = 0; i < 8; ++i) wide[i / 4][i % 4] = reinterpret_cast<const __half*>(sum)[i];
    store(d, n, wide);
}
