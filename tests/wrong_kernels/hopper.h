// What the Hopper kernels share: 64 x 32 of D by a warpgroup, threads 0 to 127; thread 128 copies boxes of A and B, 64
// of depth at a time, into a ring of stages. A is [M, K], B is [N, K]: both K-major, in rows of 128 bytes.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/warpgroup.cuh"

using namespace warptile;

using Half = unsigned short;  // its bits: nobody here computes with them
using Barrier = unsigned long long;

constexpr int BM = 64, BN = 32, BK = 64, STAGES = 3, CONSUMERS = 128;

struct alignas(1024) Stage {
    Half a[BM][BK], b[BN][BK];
};

// -- barriers and copies by name ------------------------------------------------------------------------------------

__device__ __forceinline__ void init(Barrier& barrier, int arrivals) {
    mbarrier_init(shared_address(&barrier), arrivals);
}
__device__ __forceinline__ void arrive(Barrier& barrier) { mbarrier_arrive(shared_address(&barrier)); }
__device__ __forceinline__ void arrive_at(Barrier& barrier, int rank) {
    mbarrier_arrive_at(shared_address(&barrier), rank);
}
__device__ __forceinline__ void expect(Barrier& barrier, int bytes) {
    mbarrier_arrive_expect(shared_address(&barrier), bytes);
}
__device__ __forceinline__ void wait(Barrier& barrier, int parity) { mbarrier_wait(shared_address(&barrier), parity); }

// The box whose first element is column x of row y.
__device__ __forceinline__ void load(void* to, const TensorMap& map, int x, int y, Barrier& barrier) {
    load_box(shared_address(to), map, x, y, shared_address(&barrier));
}
__device__ __forceinline__ void load(void* to, const TensorMap& map, int x, int y, Barrier& barrier, int blocks) {
    load_box(shared_address(to), map, x, y, shared_address(&barrier), static_cast<unsigned short>(blocks));
}
__device__ __forceinline__ void store(const TensorMap& map, int x, int y, const void* from) {
    store_box(map, x, y, shared_address(from));
}

// -- products of a warpgroup ----------------------------------------------------------------------------------------

using Descriptor = unsigned long long;
constexpr Descriptor NO_SWIZZLE = 0, SWIZZLE_128B = 1, SWIZZLE_64B = 2;

// Offsets in bytes. The default: rows of 128 bytes under the 128-byte swizzle, every eighth of them 1024 bytes on.
__device__ __forceinline__ Descriptor describe(const void* tile, int leading = 16, int stride = 1024,
                                               Descriptor swizzle = SWIZZLE_128B) {
    return swizzle << 62 | Descriptor(stride >> 4) << 32 | Descriptor(leading >> 4) << 16 |
           (shared_address(tile) >> 4 & 0x3FFF);
}
// What a descriptor of such rows grows by for the next 16 of depth.
constexpr Descriptor NEXT_K = 16 * sizeof(Half) >> 4;

__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

#define SUMS                                                                                                          \
    "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]),   \
        "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]),        \
        "+f"(sum[15])
#define PRODUCT "wgmma.mma_async.sync.aligned.m64n32k16.f32."
#define PLACES "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"

// A thread's part of 64 x 32 sums. Functions that name the registers keep the compiler from moving other uses of them.
struct Accumulator {
    float sum[16];

    __device__ __forceinline__ explicit Accumulator(bool zero = true) {
        for (int i = 0; i < 16 && zero; ++i) sum[i] = 0;
    }

    __device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" : SUMS::"memory"); }

    // 16 of depth. TRANSPOSED_B: B is N-major.
    template <bool BF16 = false, bool TRANSPOSED_B = false>
    __device__ __forceinline__ void multiply(Descriptor a, Descriptor b) {
        if constexpr (BF16)
            asm volatile(PRODUCT "bf16.bf16 " PLACES ", %16, %17, 1, 1, 1, 0, %18;"
                         : SUMS
                         : "l"(a), "l"(b), "n"(TRANSPOSED_B)
                         : "memory");
        else
            asm volatile(PRODUCT "f16.f16 " PLACES ", %16, %17, 1, 1, 1, 0, %18;"
                         : SUMS
                         : "l"(a), "l"(b), "n"(TRANSPOSED_B)
                         : "memory");
    }
    // The 64 of depth of a stage.
    __device__ __forceinline__ void multiply(const Stage& stage) {
        for (int i = 0; i < BK / 16; ++i) multiply(describe(stage.a) + i * NEXT_K, describe(stage.b) + i * NEXT_K);
    }

    // Until at most GROUPS groups are under way.
    template <int GROUPS>
    __device__ __forceinline__ void wait() {
        asm volatile("wgmma.wait_group.sync.aligned %16;" : SUMS : "n"(GROUPS) : "memory");
    }

    // Row and column of sum[i] in the 64 x 32.
    static __device__ __forceinline__ int row(int i) {
        return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
    }
    static __device__ __forceinline__ int column(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

    // To the block's tile of D, of which there is one every `columns`.
    __device__ __forceinline__ void store(float* d, int n, int columns = BN) const {
        float* corner = d + blockIdx.y * BM * n + blockIdx.x * columns;
        for (int i = 0; i < 16; ++i) corner[row(i) * n + column(i)] = sum[i];
    }
};

// -- tiles by ordinary stores, of 128 threads -----------------------------------------------------------------------

// Copies rows `row` on, 64 of depth from `depth` on, to a tile under the 128-byte swizzle.
template <int ROWS>
__device__ __forceinline__ void fill(Half (&tile)[ROWS][BK], const Half* matrix, int k, int row, int depth) {
    for (int i = threadIdx.x; i < ROWS * BK / 8; i += CONSUMERS) {
        const int r = i / 8, chunk = i % 8;
        const uint4* from = reinterpret_cast<const uint4*>(matrix + (row + r) * k + depth);
        reinterpret_cast<uint4*>(tile[r])[chunk ^ r % 8] = from[chunk];
    }
}
__device__ __forceinline__ void fill(Stage& stage, const Half* a, const Half* b, int k, int tile) {
    fill(stage.a, a, k, blockIdx.y * BM, tile * BK);
    fill(stage.b, b, k, blockIdx.x * BN, tile * BK);
}

// The same, as core matrices of 8 rows x 16 bytes: those of all rows, then those of the next 8 of depth.
template <int ROWS>
__device__ __forceinline__ void fill_core_matrices(Half* tile, const Half* matrix, int k, int row, int depth) {
    for (int i = threadIdx.x; i < ROWS * BK / 8; i += CONSUMERS) {
        const int r = i / 8, chunk = i % 8;
        const uint4* from = reinterpret_cast<const uint4*>(matrix + (row + r) * k + depth);
        reinterpret_cast<uint4*>(tile)[chunk * ROWS + r] = from[chunk];
    }
}

// -- the ring -------------------------------------------------------------------------------------------------------

struct Ring {
    Stage stages[STAGES];
    Barrier full[STAGES], empty[STAGES];

    // By all threads of the block.
    __device__ __forceinline__ void start(int producers = 1, int consumers = CONSUMERS) {
        if (threadIdx.x == 0) {
            for (int i = 0; i < STAGES; ++i) init(full[i], producers), init(empty[i], consumers);
            fence_mbarrier_init();
        }
        __syncthreads();
    }

    // Tile number `tile` of A and of B, 64 of depth, into its stage.
    __device__ __forceinline__ void copy(const TensorMap& a, const TensorMap& b, int tile) {
        const int s = tile % STAGES;
        load(stages[s].a, a, tile * BK, blockIdx.y * BM, full[s]);
        load(stages[s].b, b, tile * BK, blockIdx.x * BN, full[s]);
    }

    // What the copying thread does, where nothing is wrong with that.
    __device__ __forceinline__ void produce(const TensorMap& a, const TensorMap& b, int tiles) {
        for (int tile = 0; tile < tiles; ++tile) {
            const int s = tile % STAGES, round = tile / STAGES;
            ::wait(empty[s], (round + 1) % 2);
            expect(full[s], sizeof(Stage));
            copy(a, b, tile);
        }
    }

    // What the warpgroup does, where nothing is wrong with that.
    __device__ __forceinline__ void consume(Accumulator& sum, int tiles) {
        for (int tile = 0; tile < tiles; ++tile) {
            const int s = tile % STAGES, round = tile / STAGES;
            ::wait(full[s], round % 2);
            sum.fence();
            sum.multiply(stages[s]);
            commit_products();
            sum.wait<0>();
            arrive(empty[s]);
        }
    }
};

__device__ __forceinline__ bool producing() { return threadIdx.x == CONSUMERS; }
__device__ __forceinline__ bool consuming() { return threadIdx.x < CONSUMERS; }
