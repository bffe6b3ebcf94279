// Bug: Two CTAs of a cluster split K, and the first adds what the second has stored to its shared memory. Both arrive
// at the cluster barrier with `.relaxed`, which orders no memory accesses.
// On a GPU: Right most of the time; an old partial sum when a store is slower than the barrier.
// Fix: An arrival with `.release`, which is the default.
__device__ void wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

template <bool CORRECT>
__global__ void __cluster_dims__(1, 1, 2) gemm(const float* a, const float* b, float* d, int m, int n, int k) {
    __shared__ float half[256];
    const int row = blockIdx.y * 16 + threadIdx.x / 16, column = blockIdx.x * 16 + threadIdx.x % 16;
    const int k0 = k / gridDim.z;
    float sum = 0;
    for (int l = blockIdx.z * k0; l < (blockIdx.z + 1) * k0; ++l) sum += a[row * k + l] * b[l * n + column];
    half[threadIdx.x] = sum;  // REPORTED: written
    if (CORRECT)
        asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    else
        asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");  // BUG
    wait();
    if (blockIdx.z == 0) {
        const float* other = static_cast<const float*>(__cluster_map_shared_rank(half, 1));
        d[row * n + column] = sum + other[threadIdx.x];  // REPORTED: read
    }
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    wait();
}
