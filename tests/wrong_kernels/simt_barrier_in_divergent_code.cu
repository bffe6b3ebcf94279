// Bug: The guard for columns outside the matrix encloses the whole loop, barriers included. Threads outside go
// straight to the barrier after it while the rest of their warp waits at the one inside.
// On a GPU: Undefined; a hang, or tiles read before they are full.
// Fix: Every thread runs the loop; only loads and stores are guarded.
constexpr int TILE = 16;

template <bool CORRECT>
__global__ void gemm(const float* a, const float* b, float* d, int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE], patch[TILE][TILE];
    const int i = threadIdx.x / TILE, j = threadIdx.x % TILE;
    const int row = blockIdx.y * TILE + i, column = blockIdx.x * TILE + j;
    float sum = 0;
    if (CORRECT || column < n) {  // BUG
        for (int k0 = 0; k0 < k; k0 += TILE) {
            a_tile[i][j] = a[row * k + k0 + j];
            __syncthreads();  // REPORTED: those inside wait here
            for (int l = 0; l < TILE; ++l)
                if (column < n) sum += a_tile[i][l] * b[(k0 + l) * n + column];
            __syncthreads();
        }
    }
    patch[i][j] = sum;
    __syncthreads();  // REPORTED: those outside wait here
    if (column < n) d[row * n + column] = patch[i][j];
}
