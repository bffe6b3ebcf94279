// Bug: The epilogue computes `alpha * acc + beta * C` although beta is 0 and there is no C.
// On a GPU: A fault where C is a null pointer; where it is uninitialized memory, a NaN in it reaches the result.
// Fix: Do not read C when beta is 0, as BLAS specifies.
template <bool CORRECT>
__global__ void gemm(const float* a, const float* b, const float* c, float* d, int m, int n, int k, float beta) {
    const int row = blockIdx.y * 16 + threadIdx.x / 16, column = blockIdx.x * 16 + threadIdx.x % 16;
    float sum = 0;
    for (int l = 0; l < k; ++l) sum += a[row * k + l] * b[l * n + column];
    if (CORRECT && beta == 0) {  // BUG
        d[row * n + column] = sum;
    } else {
        d[row * n + column] = sum + beta * c[row * n + column];  // REPORTED: read
    }
}
