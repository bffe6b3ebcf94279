// The source of nvcc_debug.ptx: nvcc 13.0, -arch=sm_80 -G -ptx. Unoptimised code calls every function it can.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

extern "C" __global__ void scaled_product(const __half* a, const __half* b, float* c, int n, int k, float scale) {
    __shared__ __half a_tile[16 * 24];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a_fragment;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b_fragment;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.f);
    for (int depth = 0; depth < k; depth += 16) {
        for (int i = threadIdx.x; i < 256; i += 32) a_tile[i / 16 * 24 + i % 16] = a[i / 16 * k + depth + i % 16];
        __syncthreads();
        wmma::load_matrix_sync(a_fragment, a_tile, 24);
        wmma::load_matrix_sync(b_fragment, b + depth * n, n);
        wmma::mma_sync(sum, a_fragment, b_fragment, sum);
        __syncthreads();
    }
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] *= scale;
    wmma::store_matrix_sync(c, sum, n, wmma::mem_row_major);
}
