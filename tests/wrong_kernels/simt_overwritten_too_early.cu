// Bug: No barrier after the multiplication: a fast warp refills the tiles while a slower one still reads them.
// On a GPU: Right for one k-block and mostly right for more; it fails under load, or on the next GPU.
// Fix: A second `__syncthreads()` at the end of the loop.
constexpr int TILE = 16;

template <bool CORRECT>
__global__ void gemm(const float* a, const float* b, float* d, int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    const int i = threadIdx.x / TILE, j = threadIdx.x % TILE;
    const int row = blockIdx.y * TILE + i, column = blockIdx.x * TILE + j;
    float sum = 0;
    for (int k0 = 0; k0 < k; k0 += TILE) {
        a_tile[i][j] = a[row * k + k0 + j];       // REPORTED: written
        b_tile[i][j] = b[(k0 + i) * n + column];  // REPORTED: written
        __syncthreads();
        for (int l = 0; l < TILE; ++l)
            sum += a_tile[i][l] * b_tile[l][j];  // REPORTED: read
        if (CORRECT) __syncthreads();            // BUG
    }
    d[row * n + column] = sum;
}
