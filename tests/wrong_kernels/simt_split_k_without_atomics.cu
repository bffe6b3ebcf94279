// Bug: Split-K: two CTAs, each with half of K, add to the same elements of D without atomics.
// On a GPU: One CTA's half is lost wherever both have read before either has written.
// Fix: `atomicAdd`, or a workspace for each CTA and a second pass.
template <bool CORRECT>
__global__ void gemm(const float* a, const float* b, float* d, int m, int n, int k) {
    const int row = blockIdx.y * 16 + threadIdx.x / 16, column = blockIdx.x * 16 + threadIdx.x % 16;
    const int k0 = k / gridDim.z;
    float sum = 0;
    for (int l = blockIdx.z * k0; l < (blockIdx.z + 1) * k0; ++l) sum += a[row * k + l] * b[l * n + column];
    if (CORRECT) {
        atomicAdd(d + row * n + column, sum);
    } else {
        d[row * n + column] += sum;  // BUG, REPORTED: written
    }
}
