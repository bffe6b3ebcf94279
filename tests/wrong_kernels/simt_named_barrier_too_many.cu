// Bug: The named barrier between a producer warp and its consumer counts all threads of the CTA, but only two of its
// three warps arrive.
// On a GPU: The kernel hangs.
// Fix: Use the count of the participating threads.
template <bool CORRECT>
__global__ void gemm(const float* a, const float* b, float* d, int m, int n, int k) {
    __shared__ float a_row[64];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.y, column = blockIdx.x * 32 + lane;
    constexpr int THREADS = CORRECT ? 64 : 96;  // BUG
    if (warp == 0)
        for (int l = lane; l < k; l += 32) a_row[l] = a[row * k + l];
    if (warp < 2) asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");  // REPORTED: waits
    if (warp == 1) {
        float sum = 0;
        for (int l = 0; l < k; ++l) sum += a_row[l] * b[l * n + column];
        d[row * n + column] = sum;
    }
}
