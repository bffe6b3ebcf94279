// Mistake: two blocks, each with half of the depth, add to the same elements of D without an atomic operation.
// On a GPU: the half of one block is lost wherever both have read before either has written.
// Fix: `atomicAdd`, or a sum of its own for each block and a second pass.
template <bool CORRECT>
__global__ void product(const float* a, const float* b, float* d, int m, int n, int k) {
    const int row = blockIdx.y * 16 + threadIdx.x / 16, column = blockIdx.x * 16 + threadIdx.x % 16;
    const int depth = k / gridDim.z;
    float sum = 0;
    for (int l = blockIdx.z * depth; l < (blockIdx.z + 1) * depth; ++l) sum += a[row * k + l] * b[l * n + column];
    if (CORRECT) {
        atomicAdd(d + row * n + column, sum);
    } else {
        d[row * n + column] += sum;  // MISTAKE, REPORTED: written
    }
}
