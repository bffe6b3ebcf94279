// Bug: The guard admits one column too many.
// On a GPU: The value for column n of each row is stored to column 0 of the next row, before or after the right value;
// that of the last row is stored after the matrix.
// Fix: `<` instead of `<=`.
template <bool CORRECT>
__global__ void gemm(const float* a, const float* b, float* d, int m, int n, int k) {
    const int row = blockIdx.y * 16 + threadIdx.x / 16, column = blockIdx.x * 16 + threadIdx.x % 16;
    float sum = 0;
    for (int l = 0; l < k; ++l)
        if (row < m && column < n) sum += a[row * k + l] * b[l * n + column];
    if (row < m && (CORRECT ? column < n : column <= n))  // BUG
        d[row * n + column] = sum;                        // REPORTED: written
}
