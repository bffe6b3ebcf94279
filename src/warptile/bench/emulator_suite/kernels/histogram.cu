// Counts bytes: a histogram in shared memory a block, added to the result with atomics.
extern "C" __global__ void histogram(const unsigned char* x, unsigned int* bins, int count) {
    __shared__ unsigned int own[256];
    own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) atomicAdd(&own[x[i]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}
