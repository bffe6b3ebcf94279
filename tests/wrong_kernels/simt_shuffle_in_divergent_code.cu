// Bug: Each warp reduces its part of a dot product with shuffles that name all 32 lanes, inside a condition that lanes
// beyond the end of K do not satisfy.
// On a GPU: Undefined; the sum includes whatever the missing lanes' registers hold, or the warp hangs.
// Fix: Every lane participates; lanes without a term contribute zero.
template <bool CORRECT>
__global__ void gemm(const float* a, const float* b, float* d, int m, int n, int k) {
    __shared__ float parts[2];
    const int l = threadIdx.x, row = blockIdx.y, column = blockIdx.x;
    float sum = 0;
    if (CORRECT || l < k) {  // BUG
        if (l < k) sum = a[row * k + l] * b[l * n + column];
        for (int distance = 16; distance > 0; distance /= 2)
            sum += __shfl_down_sync(0xFFFFFFFF, sum, distance);  // REPORTED: not together
    }
    if (l % 32 == 0) parts[l / 32] = sum;
    __syncthreads();
    if (l == 0) d[row * n + column] = parts[0] + parts[1];
}
