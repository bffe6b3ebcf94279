// Mistake: two blocks of a cluster share the depth. The first adds what the second leaves in its shared memory; the
// second is done by then and returns.
// On a GPU: right while the second block is slow to leave; wrong sums or an illegal address once its shared memory is
// another block's.
// Fix: a barrier of the cluster at the end, so that no block leaves while another still reads its shared memory.
__device__ void meet() {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}

template <bool CORRECT>
__global__ void __cluster_dims__(1, 1, 2) product(const float* a, const float* b, float* d, int m, int n, int k) {
    __shared__ float half[256];
    const int row = blockIdx.y * 16 + threadIdx.x / 16, column = blockIdx.x * 16 + threadIdx.x % 16;
    const int depth = k / gridDim.z;
    float sum = 0;
    for (int l = blockIdx.z * depth; l < (blockIdx.z + 1) * depth; ++l) sum += a[row * k + l] * b[l * n + column];
    half[threadIdx.x] = sum;
    meet();
    if (blockIdx.z == 0) {
        const float* other = static_cast<const float*>(__cluster_map_shared_rank(half, 1));
        d[row * n + column] = sum + other[threadIdx.x];  // REPORTED: read
    }
    if (CORRECT) meet();  // MISTAKE
}
