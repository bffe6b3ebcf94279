// Attention of one head of 64 elements in f32: a thread a query, keys and values by tiles in shared memory, the softmax
// renormalized from tile to tile.
constexpr int HEAD = 64, TILE = 32;

extern "C" __global__ void __launch_bounds__(64) attention(
    const float* queries, const float* keys, const float* values, float* result, int length) {
    __shared__ float tile_k[TILE][HEAD];
    __shared__ float tile_v[TILE][HEAD];
    const int query = blockIdx.x * blockDim.x + threadIdx.x;
    const size_t head = size_t(blockIdx.y) * length * HEAD;
    float q[HEAD], sums[HEAD] = {};
    for (int i = 0; i < HEAD; ++i) q[i] = queries[head + size_t(query) * HEAD + i] * 0.125f;
    float largest = -1e30f, total = 0.0f;
    for (int start = 0; start < length; start += TILE) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * HEAD; i += blockDim.x) {
            tile_k[i / HEAD][i % HEAD] = keys[head + size_t(start) * HEAD + i];
            tile_v[i / HEAD][i % HEAD] = values[head + size_t(start) * HEAD + i];
        }
        __syncthreads();
        for (int each = 0; each < TILE; ++each) {
            float score = 0.0f;
            for (int i = 0; i < HEAD; ++i) score += q[i] * tile_k[each][i];
            const float before = largest;
            largest = fmaxf(largest, score);
            const float scale = __expf(before - largest), weight = __expf(score - largest);
            total = total * scale + weight;
            for (int i = 0; i < HEAD; ++i) sums[i] = sums[i] * scale + weight * tile_v[each][i];
        }
    }
    for (int i = 0; i < HEAD; ++i) result[head + size_t(query) * HEAD + i] = sums[i] / total;
}
