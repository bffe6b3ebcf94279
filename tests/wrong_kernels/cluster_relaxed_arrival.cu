// Mistake: two blocks of a cluster share the depth, and the first adds what the second has stored to its shared memory.
// Both arrive at the cluster's barrier with `.relaxed`, which promises that they were there and nothing about memory.
// On a GPU: right most of the time; a partial sum of before, when a store is slower than the barrier.
// Fix: an arrival with `.release`, which is what it is without a word.
__device__ void wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

template <bool CORRECT>
__global__ void __cluster_dims__(1, 1, 2) product(const float* a, const float* b, float* d, int m, int n, int k) {
    __shared__ float half[256];
    const int row = blockIdx.y * 16 + threadIdx.x / 16, column = blockIdx.x * 16 + threadIdx.x % 16;
    const int depth = k / gridDim.z;
    float sum = 0;
    for (int l = blockIdx.z * depth; l < (blockIdx.z + 1) * depth; ++l) sum += a[row * k + l] * b[l * n + column];
    half[threadIdx.x] = sum;  // REPORTED: written
    if (CORRECT)
        asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    else
        asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");  // MISTAKE
    wait();
    if (blockIdx.z == 0) {
        const float* other = static_cast<const float*>(__cluster_map_shared_rank(half, 1));
        d[row * n + column] = sum + other[threadIdx.x];  // REPORTED: read
    }
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    wait();
}
