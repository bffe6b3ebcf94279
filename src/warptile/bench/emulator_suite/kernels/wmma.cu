// D = A B, f16 into f32, with WMMA: four warps of a 64 x 64 tile, A and B through shared memory.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

constexpr int TILE = 64, TILE_K = 32, PITCH = TILE_K + 8, PITCH_B = TILE + 8;

extern "C" __global__ void __launch_bounds__(128) wmma_gemm(const half* a, const half* b, float* d, int n, int k) {
    __shared__ half tile_a[TILE * PITCH];
    __shared__ half tile_b[TILE_K * PITCH_B];
    const int warp = threadIdx.x / 32, row = warp / 2 * 32, column = warp % 2 * 32;
    a += size_t(blockIdx.y) * TILE * k;
    b += blockIdx.x * TILE;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2][2];
    for (int m = 0; m < 2; ++m)
        for (int each = 0; each < 2; ++each) wmma::fill_fragment(sums[m][each], 0.0f);
    for (int start = 0; start < k; start += TILE_K) {
        for (int i = threadIdx.x; i < TILE * TILE_K / 8; i += 128) {
            const int m = i / (TILE_K / 8), inner = i % (TILE_K / 8) * 8;
            *reinterpret_cast<uint4*>(&tile_a[m * PITCH + inner]) =
                *reinterpret_cast<const uint4*>(a + size_t(m) * k + start + inner);
        }
        for (int i = threadIdx.x; i < TILE_K * TILE / 8; i += 128) {
            const int inner = i / (TILE / 8), place = i % (TILE / 8) * 8;
            *reinterpret_cast<uint4*>(&tile_b[inner * PITCH_B + place]) =
                *reinterpret_cast<const uint4*>(b + size_t(start + inner) * n + place);
        }
        __syncthreads();
        for (int inner = 0; inner < TILE_K; inner += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right[2];
            for (int m = 0; m < 2; ++m) wmma::load_matrix_sync(left[m], &tile_a[(row + m * 16) * PITCH + inner], PITCH);
            for (int each = 0; each < 2; ++each)
                wmma::load_matrix_sync(right[each], &tile_b[inner * PITCH_B + column + each * 16], PITCH_B);
            for (int m = 0; m < 2; ++m)
                for (int each = 0; each < 2; ++each) wmma::mma_sync(sums[m][each], left[m], right[each], sums[m][each]);
        }
        __syncthreads();
    }
    d += (size_t(blockIdx.y) * TILE + row) * n + blockIdx.x * TILE + column;
    for (int m = 0; m < 2; ++m)
        for (int each = 0; each < 2; ++each)
            wmma::store_matrix_sync(d + size_t(m) * 16 * n + each * 16, sums[m][each], n, wmma::mem_row_major);
}
