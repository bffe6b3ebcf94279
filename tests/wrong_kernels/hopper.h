// Shared by the Hopper kernels. A consumer warpgroup, threads 0 to 127, computes a 64 x 32 tile of D; thread 128, the
// producer, loads k-blocks of 64 into a ring of stages by TMA. A is [M, K], B is [N, K]: both K-major, in rows of 128
// bytes.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/cp_async_bulk_tensor.cuh"
#include "ptx/warpgroup.cuh"

using namespace warptile;

using Half = unsigned short;  // the bits of an f16 or bf16: only wgmma computes with them
using Barrier = unsigned long long;

constexpr int BM = 64, BN = 32, BK = 64, STAGES = 3, CONSUMERS = 128;

struct alignas(1024) Stage {
    Half a[BM][BK], b[BN][BK];
};

// -- mbarriers and tensor copies ------------------------------------------------------------------------------------

__device__ __forceinline__ void init(Barrier& barrier, int arrivals) {
    mbarrier_init(shared_address(&barrier), arrivals);
}
__device__ __forceinline__ void arrive(Barrier& barrier) { mbarrier_arrive(shared_address(&barrier)); }
__device__ __forceinline__ void arrive_at(Barrier& barrier, int rank) {
    mbarrier_arrive_remote(shared_address(&barrier), rank);
}
__device__ __forceinline__ void expect(Barrier& barrier, int bytes) {
    mbarrier_arrive_expect_tx(shared_address(&barrier), bytes);
}
__device__ __forceinline__ void wait(Barrier& barrier, int parity) { mbarrier_wait(shared_address(&barrier), parity); }

// The box whose first element is column x of row y.
__device__ __forceinline__ void load(void* to, const TensorMap& map, int x, int y, Barrier& barrier) {
    cp_async_bulk_tensor_load_2d(shared_address(to), map, x, y, shared_address(&barrier));
}
__device__ __forceinline__ void load(void* to, const TensorMap& map, int x, int y, Barrier& barrier, int cta_mask) {
    cp_async_bulk_tensor_load_2d_multicast(shared_address(to), map, x, y, shared_address(&barrier),
                                           static_cast<unsigned short>(cta_mask));
}
__device__ __forceinline__ void store(const TensorMap& map, int x, int y, const void* from) {
    cp_async_bulk_tensor_store_2d(map, x, y, shared_address(from));
}

// -- wgmma ----------------------------------------------------------------------------------------------------------

using Descriptor = unsigned long long;
constexpr Descriptor NO_SWIZZLE = 0, SWIZZLE_128B = 1, SWIZZLE_64B = 2;

// A matrix descriptor; offsets in bytes. Default: rows of 128 bytes with the 128-byte swizzle, 1024 bytes per 8 rows.
__device__ __forceinline__ Descriptor describe(const void* tile, int leading = 16, int stride = 1024,
                                               Descriptor swizzle = SWIZZLE_128B) {
    return swizzle << 62 | Descriptor(stride >> 4) << 32 | Descriptor(leading >> 4) << 16 |
           (shared_address(tile) >> 4 & 0x3FFF);
}
// Increment of a K-major descriptor for the next MMA-K block of 16 elements.
constexpr Descriptor NEXT_K = 16 * sizeof(Half) >> 4;

__device__ __forceinline__ void commit_wgmma() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

#define ACCUMULATORS                                                                                                  \
    "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]),   \
        "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]),        \
        "+f"(sum[15])
#define WGMMA "wgmma.mma_async.sync.aligned.m64n32k16.f32."
#define REGISTERS "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"

// A thread's accumulators of a 64 x 32 tile. Each asm statement names all of them, so that the compiler moves no other
// use of these registers across it.
struct Accumulator {
    float sum[16];

    __device__ __forceinline__ explicit Accumulator(bool zero = true) {
        for (int i = 0; i < 16 && zero; ++i) sum[i] = 0;
    }

    __device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" : ACCUMULATORS::"memory"); }

    // One MMA-K block of 16. TRANSPOSED_B: B is MN-major.
    template <bool BF16 = false, bool TRANSPOSED_B = false>
    __device__ __forceinline__ void multiply(Descriptor a, Descriptor b) {
        if constexpr (BF16)
            asm volatile(WGMMA "bf16.bf16 " REGISTERS ", %16, %17, 1, 1, 1, 0, %18;"
                         : ACCUMULATORS
                         : "l"(a), "l"(b), "n"(TRANSPOSED_B)
                         : "memory");
        else
            asm volatile(WGMMA "f16.f16 " REGISTERS ", %16, %17, 1, 1, 1, 0, %18;"
                         : ACCUMULATORS
                         : "l"(a), "l"(b), "n"(TRANSPOSED_B)
                         : "memory");
    }
    // The whole k-block of a stage.
    __device__ __forceinline__ void multiply(const Stage& stage) {
        for (int i = 0; i < BK / 16; ++i) multiply(describe(stage.a) + i * NEXT_K, describe(stage.b) + i * NEXT_K);
    }

    // Waits until at most GROUPS groups are in flight.
    template <int GROUPS>
    __device__ __forceinline__ void wait() {
        asm volatile("wgmma.wait_group.sync.aligned %16;" : ACCUMULATORS : "n"(GROUPS) : "memory");
    }

    // Row and column of sum[i] in the tile.
    static __device__ __forceinline__ int row(int i) {
        return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
    }
    static __device__ __forceinline__ int column(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

    // Stores to the CTA's tile of D; tiles are `columns` apart along N.
    __device__ __forceinline__ void store(float* d, int n, int columns = BN) const {
        float* corner = d + blockIdx.y * BM * n + blockIdx.x * columns;
        for (int i = 0; i < 16; ++i) corner[row(i) * n + column(i)] = sum[i];
    }
};

// -- tiles filled by ordinary stores of 128 threads -----------------------------------------------------------------

// Copies ROWS rows from `row`, BK columns from `k0`, to a tile with the 128-byte swizzle.
template <int ROWS>
__device__ __forceinline__ void fill(Half (&tile)[ROWS][BK], const Half* matrix, int k, int row, int k0) {
    for (int i = threadIdx.x; i < ROWS * BK / 8; i += CONSUMERS) {
        const int r = i / 8, chunk = i % 8;
        const uint4* from = reinterpret_cast<const uint4*>(matrix + (row + r) * k + k0);
        reinterpret_cast<uint4*>(tile[r])[chunk ^ r % 8] = from[chunk];
    }
}
__device__ __forceinline__ void fill(Stage& stage, const Half* a, const Half* b, int k, int tile) {
    fill(stage.a, a, k, blockIdx.y * BM, tile * BK);
    fill(stage.b, b, k, blockIdx.x * BN, tile * BK);
}

// The same without a swizzle, as core matrices of 8 rows x 16 bytes, those of all rows for one chunk of K together.
template <int ROWS>
__device__ __forceinline__ void fill_core_matrices(Half* tile, const Half* matrix, int k, int row, int k0) {
    for (int i = threadIdx.x; i < ROWS * BK / 8; i += CONSUMERS) {
        const int r = i / 8, chunk = i % 8;
        const uint4* from = reinterpret_cast<const uint4*>(matrix + (row + r) * k + k0);
        reinterpret_cast<uint4*>(tile)[chunk * ROWS + r] = from[chunk];
    }
}

// -- the pipeline ---------------------------------------------------------------------------------------------------

struct Ring {
    Stage stages[STAGES];
    Barrier full[STAGES], empty[STAGES];

    // Called by all threads of the CTA.
    __device__ __forceinline__ void start(int producers = 1, int consumers = CONSUMERS) {
        if (threadIdx.x == 0) {
            for (int i = 0; i < STAGES; ++i) init(full[i], producers), init(empty[i], consumers);
            fence_mbarrier_init();
        }
        __syncthreads();
    }

    // Starts the copies of k-block `tile` of A and of B into its stage.
    __device__ __forceinline__ void copy(const TensorMap& a, const TensorMap& b, int tile) {
        const int s = tile % STAGES;
        load(stages[s].a, a, tile * BK, blockIdx.y * BM, full[s]);
        load(stages[s].b, b, tile * BK, blockIdx.x * BN, full[s]);
    }

    // The producer's loop, for kernels whose bug is elsewhere.
    __device__ __forceinline__ void produce(const TensorMap& a, const TensorMap& b, int tiles) {
        for (int tile = 0; tile < tiles; ++tile) {
            const int s = tile % STAGES, round = tile / STAGES;
            ::wait(empty[s], (round + 1) % 2);
            expect(full[s], sizeof(Stage));
            copy(a, b, tile);
        }
    }

    // The consumer's loop, for kernels whose bug is elsewhere.
    __device__ __forceinline__ void consume(Accumulator& sum, int tiles) {
        for (int tile = 0; tile < tiles; ++tile) {
            const int s = tile % STAGES, round = tile / STAGES;
            ::wait(full[s], round % 2);
            sum.fence();
            sum.multiply(stages[s]);
            commit_wgmma();
            sum.wait<0>();
            arrive(empty[s]);
        }
    }
};

__device__ __forceinline__ bool producing() { return threadIdx.x == CONSUMERS; }
__device__ __forceinline__ bool consuming() { return threadIdx.x < CONSUMERS; }
