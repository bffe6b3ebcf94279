// Sums an array: grid-stride loads, a tree in shared memory, warp shuffles at its end, one atomic a block.
extern "C" __global__ void reduction(const float* x, float* total, int count) {
    __shared__ float partial[256];
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += x[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half >= 32; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x < 32) {
        sum = partial[threadIdx.x];
        for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, lane);
        if (threadIdx.x == 0) atomicAdd(total, sum);
    }
}
