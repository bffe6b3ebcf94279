// The dequantizing pass: packed weights of 4 or 8 bits as rows of 16-bit elements, for GEMMs that read them often.
#pragma once

#include "ptx/cp_async_bulk.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mbarrier.cuh"
#include "tile/dequantization.cuh"

namespace warptile {

// One warpgroup for each block of 64 x 128 weights. `to` has `n` rows of `k` elements of 16 bits, `stride` apart;
// `stride` is a multiple of eight, and what stands between rows may be overwritten.
template <typename ELEMENT, int BITS, int GROUP, bool ZERO_POINT>
__global__ void __launch_bounds__(WARPGROUP)
    dequantize_blocks(const unsigned char* packed, unsigned short* to, long long stride, int n, int k, int row_blocks) {
    using BLOCK = QuantizedBlock<ELEMENT, BITS, GROUP, ZERO_POINT>;
    constexpr int ROW_BYTES = BLOCK::PART * 2, CHUNKS = ROW_BYTES / 16;
    static_assert(CHUNKS == 8, "a row in shared memory is as wide as all banks");
    __shared__ __align__(128) unsigned char block[BLOCK::BYTES];
    __shared__ __align__(128) unsigned char part_rows[BLOCK::ROWS * ROW_BYTES];
    __shared__ unsigned long long full;
    const unsigned barrier = shared_address(&full), from = shared_address(block), rows = shared_address(part_rows);
    const int first_row = blockIdx.x % row_blocks * BLOCK::ROWS, first_k = blockIdx.x / row_blocks * BLOCK::K;
    if (threadIdx.x == 0) {
        mbarrier_init(barrier, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(barrier, BLOCK::BYTES);
        cp_async_bulk_load_evict_first(from, packed + static_cast<long long>(blockIdx.x) * BLOCK::BYTES, BLOCK::BYTES,
                                       barrier);
    }
    __syncthreads();
    mbarrier_wait(barrier, 0);

    // A warp has 16 rows, and needs no other's: through shared memory they become whole rows, with the XOR swizzle of
    // 16-byte chunks against bank conflicts.
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const auto chunk_at = [&](int row, int chunk) { return rows + row * ROW_BYTES + (chunk ^ row % 8) * 16; };
    typename BLOCK::Scales scales;
    scales.load(from);
#pragma unroll
    for (int part = 0; part < BLOCK::PARTS; ++part) {
        typename BLOCK::Part weights;
        weights.load(from, part);
#pragma unroll
        for (int k_block = 0; k_block < BLOCK::K_BLOCKS; ++k_block) {
            unsigned fragment[4];
            weights.template dequantize<false>(fragment, scales, part, k_block);
            stmatrix_x4<false>(chunk_at(16 * warp + lane % 16, 2 * k_block + lane / 16), fragment);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16 * CHUNKS; i += 32) {
            const int row = 16 * warp + (i + lane) / CHUNKS, chunk = (i + lane) % CHUNKS;
            const int column = first_k + part * BLOCK::PART + 8 * chunk;
            if (first_row + row < n && column < k)
                *reinterpret_cast<uint4*>(to + (first_row + row) * stride + column) =
                    ld_shared<16>(chunk_at(row, chunk)).bits;
        }
        __syncwarp();
    }
}

}  // namespace warptile
