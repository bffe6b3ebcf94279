// Bug: The loop over K runs one iteration too many.
// On a GPU: Each row adds one product too many, of the next row of A and of whatever follows B. Where that is zero,
// the result is right.
// Fix: `<` instead of `<=`.
template <bool CORRECT>
__global__ void gemm(const float* a, const float* b, float* d, int m, int n, int k) {
    const int row = blockIdx.y * 16 + threadIdx.x / 16, column = blockIdx.x * 16 + threadIdx.x % 16;
    if (row >= m || column >= n) return;
    float sum = 0;
    for (int l = 0; CORRECT ? l < k : l <= k; ++l)  // BUG
        sum += a[row * k + l] * b[l * n + column];  // REPORTED: read
    d[row * n + column] = sum;
}
