// Bug: A CTA leaves its partial sums in a workspace and sets a flag for another CTA, which adds its own; no fence
// orders the sums before the flag.
// On a GPU: The flag may become visible before the sums: some elements, sometimes, lack half of their terms.
// Fix: `__threadfence()` before the flag is set and after it is seen.
__device__ float workspace[64][256];
__device__ volatile int raised[64];

template <bool CORRECT>
__global__ void gemm(const float* a, const float* b, float* d, int m, int n, int k) {
    const int row = blockIdx.y * 16 + threadIdx.x / 16, column = blockIdx.x * 16 + threadIdx.x % 16;
    const int half = k / 2, tile = blockIdx.y * gridDim.x + blockIdx.x;
    float sum = 0;
    for (int l = blockIdx.z * half; l < (blockIdx.z + 1) * half; ++l) sum += a[row * k + l] * b[l * n + column];
    if (blockIdx.z == 0) {
        workspace[tile][threadIdx.x] = sum;  // REPORTED: written
        __syncthreads();
        if (threadIdx.x == 0) {
            if (CORRECT) __threadfence();  // BUG
            raised[tile] = 1;
        }
    } else {
        if (threadIdx.x == 0) {
            while (raised[tile] == 0) {
            }
            if (CORRECT) __threadfence();  // BUG
        }
        __syncthreads();
        d[row * n + column] = workspace[tile][threadIdx.x] + sum;  // REPORTED: read
    }
}
