// Softmax of the rows of a matrix: one block a row, kept in shared memory between three passes.
__device__ float block_reduce(float value, float* partial, bool maximum) {
    for (int lane = 16; lane > 0; lane /= 2) {
        float other = __shfl_xor_sync(0xFFFFFFFFu, value, lane);
        value = maximum ? fmaxf(value, other) : value + other;
    }
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = partial[0];
    for (int warp = 1; warp < blockDim.x / 32; ++warp) value = maximum ? fmaxf(value, partial[warp]) : value + partial[warp];
    __syncthreads();
    return value;
}

extern "C" __global__ void softmax(const float* x, float* y, int columns) {
    extern __shared__ float row[];
    __shared__ float partial[8];
    const float* source = x + size_t(blockIdx.x) * columns;
    float* target = y + size_t(blockIdx.x) * columns;
    float largest = -1e30f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        row[i] = source[i];
        largest = fmaxf(largest, row[i]);
    }
    largest = block_reduce(largest, partial, true);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) {
        row[i] = __expf(row[i] - largest);
        sum += row[i];
    }
    sum = block_reduce(sum, partial, false);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) target[i] = row[i] / sum;
}
