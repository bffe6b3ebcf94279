// One warp computes a 16 x 8 tile of D = A B with mma.sp; B is stored [n, k]. Of each four neighbours along K, at most
// two elements of A are not zero.
#include <cuda_fp16.h>
#include "ptx/mma.cuh"
using namespace warptile;

// Two of four elements, those that are not zero among them, and the nibble that says where they stood.
struct Kept {
    unsigned values, nibble;

    __device__ explicit Kept(const __half* four) {
        const auto zero = [&](int i) { return __half2float(four[i]) == 0.0f; };
        int first = 0;
        while (first < 2 && zero(first)) ++first;
        int second = first + 1;
        while (second < 3 && zero(second)) ++second;
        const __half2 both = {four[first], four[second]};
        values = *reinterpret_cast<const unsigned*>(&both);
        nibble = first | second << 2;
    }
};

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    using MMA = SparseMma<__half, float, 16, 8, 16, 0>;
    const int row = blockIdx.y * 16, column = blockIdx.x * 8, group = threadIdx.x / 4, quad = threadIdx.x % 4;
    float c[4] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        // Lane L compresses four elements of row L / 4, and four of row L / 4 + 8.
        const Kept upper(&a[(row + group) * k + k0 + 4 * quad]), lower(&a[(row + group + 8) * k + k0 + 4 * quad]);
        const unsigned left[2] = {upper.values, lower.values};
        const __half* of_b = &b[(column + group) * k + k0 + 2 * quad];
        const unsigned right[2] = {*reinterpret_cast<const unsigned*>(of_b),
                                   *reinterpret_cast<const unsigned*>(of_b + 8)};
        // The instruction reads the words of lanes 0, 4, 8, ...: nibbles of row L / 4 in bits 0 to 15, and of
        // row L / 4 + 8 in bits 16 to 31, for k0 + 0 to 3 in the lowest.
        unsigned metadata = upper.nibble << 4 * quad | lower.nibble << (16 + 4 * quad);
        metadata |= __shfl_xor_sync(~0u, metadata, 1);  // ANSWER
        metadata |= __shfl_xor_sync(~0u, metadata, 2);  // ANSWER
        MMA::mma_sync(c, left, right, metadata);
    }
    *reinterpret_cast<float2*>(&d[(row + group) * n + column + 2 * quad]) = {c[0], c[1]};
    *reinterpret_cast<float2*>(&d[(row + group + 8) * n + column + 2 * quad]) = {c[2], c[3]};
}
