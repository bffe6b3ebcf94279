// One thread computes one element of D = A B, 256 threads a 16 x 16 tile. The lanes of a warp are neighbours in
// threadIdx.x.
#include <cuda_fp16.h>

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    // Which element of the tile is this thread's?
    const int row = blockIdx.y * 16 + threadIdx.x % 16, column = blockIdx.x * 16 + threadIdx.x / 16;  // HOLE
    const int row = blockIdx.y * 16 + threadIdx.x / 16, column = blockIdx.x * 16 + threadIdx.x % 16;  // ANSWER
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += __half2float(a[row * k + i]) * __half2float(b[i * n + column]);
    d[row * n + column] = sum;
}
