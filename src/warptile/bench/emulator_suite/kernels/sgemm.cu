// C = A B in f32 on CUDA cores: 64 x 64 tiles in shared memory, 8 x 4 results in registers, loads of 16 bytes.
constexpr int TILE_M = 64, TILE_N = 64, TILE_K = 16, THREAD_M = 8, THREAD_N = 4;

extern "C" __global__ void __launch_bounds__(128) sgemm(const float* a, const float* b, float* c, int n, int k) {
    __shared__ float tile_a[TILE_K][TILE_M];
    __shared__ float tile_b[TILE_K][TILE_N];
    const int thread = threadIdx.x;
    const int row = thread / (TILE_N / THREAD_N) * THREAD_M, column = thread % (TILE_N / THREAD_N) * THREAD_N;
    a += size_t(blockIdx.y) * TILE_M * k;
    b += blockIdx.x * TILE_N;
    float sums[THREAD_M][THREAD_N] = {};
    for (int start = 0; start < k; start += TILE_K) {
        for (int i = thread; i < TILE_M * TILE_K / 4; i += 128) {
            const int m = i / (TILE_K / 4), inner = i % (TILE_K / 4) * 4;
            const float4 four = *reinterpret_cast<const float4*>(a + size_t(m) * k + start + inner);
            tile_a[inner][m] = four.x;
            tile_a[inner + 1][m] = four.y;
            tile_a[inner + 2][m] = four.z;
            tile_a[inner + 3][m] = four.w;
        }
        for (int i = thread; i < TILE_K * TILE_N / 4; i += 128) {
            const int inner = i / (TILE_N / 4), place = i % (TILE_N / 4) * 4;
            *reinterpret_cast<float4*>(&tile_b[inner][place]) =
                *reinterpret_cast<const float4*>(b + size_t(start + inner) * n + place);
        }
        __syncthreads();
        for (int inner = 0; inner < TILE_K; ++inner) {
            float left[THREAD_M], right[THREAD_N];
            for (int m = 0; m < THREAD_M; ++m) left[m] = tile_a[inner][row + m];
            for (int each = 0; each < THREAD_N; ++each) right[each] = tile_b[inner][column + each];
            for (int m = 0; m < THREAD_M; ++m)
                for (int each = 0; each < THREAD_N; ++each) sums[m][each] += left[m] * right[each];
        }
        __syncthreads();
    }
    c += (size_t(blockIdx.y) * TILE_M + row) * n + blockIdx.x * TILE_N + column;
    for (int m = 0; m < THREAD_M; ++m)
        for (int each = 0; each < THREAD_N; ++each) c[size_t(m) * n + each] = sums[m][each];
}
