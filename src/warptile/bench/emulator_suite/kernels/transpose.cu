// Transposes a matrix through tiles of 32 x 33 in shared memory.
extern "C" __global__ void transpose(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (column < columns && row + i < rows) tile[threadIdx.y + i][threadIdx.x] = x[size_t(row + i) * columns + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (column < rows && row + i < columns) y[size_t(row + i) * rows + column] = tile[threadIdx.x][threadIdx.y + i];
}
