// Mistake: no barrier between filling the tiles and reading them: a thread multiplies what another may not have
// written yet.
// On a GPU: right most of the time, as warps start together; wrong values of the tile before, now and then.
// Fix: `__syncthreads()` once the tiles are full.
constexpr int TILE = 16;

template <bool CORRECT>
__global__ void product(const float* a, const float* b, float* d, int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    const int i = threadIdx.x / TILE, j = threadIdx.x % TILE;
    const int row = blockIdx.y * TILE + i, column = blockIdx.x * TILE + j;
    float sum = 0;
    for (int depth = 0; depth < k; depth += TILE) {
        a_tile[i][j] = a[row * k + depth + j];       // REPORTED: written
        b_tile[i][j] = b[(depth + i) * n + column];  // REPORTED: written
        if (CORRECT) __syncthreads();                // MISTAKE
        for (int l = 0; l < TILE; ++l)
            sum += a_tile[i][l] * b_tile[l][j];  // REPORTED: read
        __syncthreads();
    }
    d[row * n + column] = sum;
}
