// Bug: Two CTAs of a cluster split K. The first adds what the second leaves in its shared memory; the second has
// returned by then.
// On a GPU: Right while the second CTA is slow to exit; wrong results or an illegal address once its shared memory is
// another CTA's.
// Fix: A cluster barrier at the end, so that no CTA exits while another still reads its shared memory.
__device__ void cluster_barrier() {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}

template <bool CORRECT>
__global__ void __cluster_dims__(1, 1, 2) gemm(const float* a, const float* b, float* d, int m, int n, int k) {
    __shared__ float half[256];
    const int row = blockIdx.y * 16 + threadIdx.x / 16, column = blockIdx.x * 16 + threadIdx.x % 16;
    const int k0 = k / gridDim.z;
    float sum = 0;
    for (int l = blockIdx.z * k0; l < (blockIdx.z + 1) * k0; ++l) sum += a[row * k + l] * b[l * n + column];
    half[threadIdx.x] = sum;
    cluster_barrier();
    if (blockIdx.z == 0) {
        const float* other = static_cast<const float*>(__cluster_map_shared_rank(half, 1));
        d[row * n + column] = sum + other[threadIdx.x];  // REPORTED: read
    }
    if (CORRECT) cluster_barrier();  // BUG
}
