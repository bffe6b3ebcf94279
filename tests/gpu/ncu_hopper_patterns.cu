// One asynchronous operation of one thread or one warpgroup at a time, for Nsight Compute to count. The kernels that
// multiply are made by tests/support/hopper_patterns.py and follow this text.
struct alignas(64) Map { unsigned long long words[16]; };
typedef unsigned long long u64;

__device__ unsigned at(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ void init(u64* b) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(b)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ void expect(u64* b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(b)), "r"(bytes) : "memory");
}
__device__ void wait(u64* b) {
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(at(b)) : "memory");
}
__device__ void commit_and_wait() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
#define BAR "mbarrier::complete_tx::bytes"

extern "C" __global__ void hopper_nothing() {}

// What every load below does besides loading.
extern "C" __global__ void hopper_wait() {
    __shared__ u64 full;
    init(&full);
    expect(&full, 0);
    wait(&full);
}

// REPEAT times the same box, one behind the other in shared memory.
template <int RANK, int REPEAT>
__global__ void hopper_load(const __grid_constant__ Map map, int x, int y, int bytes) {
    extern __shared__ __align__(1024) char tile[];
    __shared__ u64 full;
    init(&full);
    expect(&full, bytes * REPEAT);
    for (int i = 0; i < REPEAT; ++i) {
        const unsigned to = at(tile) + i * bytes;
        if constexpr (RANK == 2)
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global." BAR " [%0], [%1, {%3, %4}], [%2];"
                         ::"r"(to), "l"(&map), "r"(at(&full)), "r"(x), "r"(y) : "memory");
        else
            asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global." BAR " [%0], [%1, {%3, %4, %5}], [%2];"
                         ::"r"(to), "l"(&map), "r"(at(&full)), "r"(x), "r"(y), "r"(0) : "memory");
    }
    wait(&full);
}

// The first ISSUERS blocks of a cluster of two load one box each, for both blocks.
template <int ISSUERS>
__global__ void hopper_multicast(const __grid_constant__ Map map, int x, int y, int bytes) {
    extern __shared__ __align__(1024) char tile[];
    __shared__ u64 full;
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    init(&full);
    expect(&full, bytes * ISSUERS);
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    if (rank < ISSUERS)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global." BAR ".multicast::cluster "
                     "[%0], [%1, {%3, %4}], [%2], %5;"
                     ::"r"(at(tile) + rank * bytes), "l"(&map), "r"(at(&full)), "r"(x), "r"(y), "h"((short)3)
                     : "memory");
    wait(&full);
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

extern "C" __global__ void hopper_bulk_load(const char* from, int bytes) {
    extern __shared__ __align__(1024) char tile[];
    __shared__ u64 full;
    init(&full);
    expect(&full, bytes);
    asm volatile("cp.async.bulk.shared::cluster.global." BAR " [%0], [%1], %2, [%3];"
                 ::"r"(at(tile)), "l"(from), "r"(bytes), "r"(at(&full)) : "memory");
    wait(&full);
}

extern "C" __global__ void hopper_store(const __grid_constant__ Map map, int x, int y) {
    extern __shared__ __align__(1024) char tile[];
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                 ::"l"(&map), "r"(at(tile)), "r"(x), "r"(y) : "memory");
    commit_and_wait();
}

extern "C" __global__ void hopper_reduce(const __grid_constant__ Map map, int x, int y) {
    extern __shared__ __align__(1024) char tile[];
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%2, %3}], [%1];"
                 ::"l"(&map), "r"(at(tile)), "r"(x), "r"(y) : "memory");
    commit_and_wait();
}

extern "C" __global__ void hopper_bulk_store(char* to, int bytes) {
    extern __shared__ __align__(1024) char tile[];
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(at(tile)), "r"(bytes)
                 : "memory");
    commit_and_wait();
}

// Lane i's row starts at pitch * i, with its 16-byte chunk 0 moved to chunk i % 8 if it is swizzled.
template <int COUNT, bool TRANSPOSED>
__global__ void hopper_stmatrix(int pitch, int swizzled) {
    extern __shared__ __align__(1024) char tile[];
    const unsigned lane = threadIdx.x, to = at(tile) + pitch * lane + (swizzled ? lane % 8 * 16 : 0);
#define STMATRIX(TRANS)                                                                                              \
    if constexpr (COUNT == 1)                                                                                        \
        asm volatile("stmatrix.sync.aligned.m8n8.x1" TRANS ".shared.b16 [%0], {%1};" ::"r"(to), "r"(lane) : "memory"); \
    else if constexpr (COUNT == 2)                                                                                   \
        asm volatile("stmatrix.sync.aligned.m8n8.x2" TRANS ".shared.b16 [%0], {%1, %1};" ::"r"(to), "r"(lane)         \
                     : "memory");                                                                                    \
    else                                                                                                             \
        asm volatile("stmatrix.sync.aligned.m8n8.x4" TRANS ".shared.b16 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(lane) \
                     : "memory")
    if constexpr (TRANSPOSED) {
        STMATRIX(".trans");
    } else {
        STMATRIX("");
    }
}
