// Bug: No barrier between filling the tiles and reading them: a thread multiplies values that another may not have
// written yet.
// On a GPU: Right most of the time, as warps start together; now and then values of the previous tile.
// Fix: `__syncthreads()` after the tiles are full.
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
        if (CORRECT) __syncthreads();                // BUG
        for (int l = 0; l < TILE; ++l)
            sum += a_tile[i][l] * b_tile[l][j];  // REPORTED: read
        __syncthreads();
    }
    d[row * n + column] = sum;
}
