// One warp computes a 16 x 16 tile of D = A B. Bulk copies fill two stages in turn; an mbarrier says when one is full.
#include <cuda_fp16.h>
#include <mma.h>
#include "ptx/cp_async_bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
using namespace nvcuda;
using namespace warptile;

constexpr int TILE = 16, STAGES = 2, ROW_BYTES = TILE * sizeof(__half);
struct alignas(128) Stage {
    __half a[TILE][TILE], b[TILE][TILE];
};

// Copies a row of a tile; the bytes are counted by the mbarrier.
__device__ void copy_row(__half* to, const __half* from, unsigned full) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(ROW_BYTES), "r"(full)
                 : "memory");
}

template <int>
__global__ void gemm(const __half* a, const __half* b, float* d, int n, int k) {
    __shared__ Stage stages[STAGES];
    __shared__ unsigned long long barriers[STAGES];
    const int row = blockIdx.y * TILE, column = blockIdx.x * TILE, lane = threadIdx.x, tiles = k / TILE;
    const auto full = [&](int tile) { return shared_address(&barriers[tile % STAGES]); };
    if (lane == 0) {
        for (int stage = 0; stage < STAGES; ++stage) mbarrier_init(full(stage), 1);
        fence_mbarrier_init();
    }
    __syncwarp();
    const auto start_copy = [&](int tile) {  // by one thread: 32 copies of 32 bytes
        Stage& stage = stages[tile % STAGES];
        mbarrier_arrive_expect_tx(full(tile), sizeof(Stage));
        for (int i = 0; i < TILE; ++i) {
            copy_row(stage.a[i], &a[(row + i) * k + tile * TILE], full(tile));
            copy_row(stage.b[i], &b[(tile * TILE + i) * n + column], full(tile));
        }
    };
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    if (lane == 0)
        for (int tile = 0; tile < STAGES; ++tile) start_copy(tile);
    for (int tile = 0; tile < tiles; ++tile) {
        mbarrier_wait(full(tile), 0);  // HOLE
        mbarrier_wait(full(tile), tile / STAGES % 2);  // ANSWER
        wmma::load_matrix_sync(left, stages[tile % STAGES].a[0], TILE);
        wmma::load_matrix_sync(right, stages[tile % STAGES].b[0], TILE);
        wmma::mma_sync(sum, left, right, sum);
        __syncwarp();
        if (lane == 0 && tile + STAGES < tiles) {
            fence_proxy_async();  // the reads above lie before the copy that overwrites them
            start_copy(tile + STAGES);
        }
    }
    wmma::store_matrix_sync(&d[row * n + column], sum, n, wmma::mem_row_major);
}
