// TMA, the Tensor Memory Accelerator: boxes of a matrix between global and shared memory (sm_90).
// PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk.tensor" and "Tensors".
#pragma once

namespace warptile {

// A tensor map (CUtensorMap), a kernel parameter: which matrix, how large a box is, how TMA swizzles its rows.
struct __align__(64) TensorMap {
    unsigned char fields[128];
};

__device__ __forceinline__ void prefetch_tensormap(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Loads the box at (x, y) into shared memory; x runs along contiguous elements. The box's bytes complete the
// transaction count of `barrier`. Elements outside the matrix are filled with zeros, and their bytes count as well.
__device__ __forceinline__ void cp_async_bulk_tensor_load_2d(unsigned to, const TensorMap& map, int x, int y,
                                                             unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// The same with the cache policy evict_first: for bytes that no other CTA loads.
__device__ __forceinline__ void cp_async_bulk_tensor_load_2d_evict_first(unsigned to, const TensorMap& map, int x,
                                                                         int y, unsigned barrier) {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier), "l"(policy)
        : "memory");
}

// Multicast: loads the box into the shared memory of every CTA of the cluster whose bit is set in `cta_mask`, at the
// same address. In each of them the bytes complete that CTA's own barrier.
__device__ __forceinline__ void cp_async_bulk_tensor_load_2d_multicast(unsigned to, const TensorMap& map, int x, int y,
                                                                       unsigned barrier, unsigned short cta_mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(cta_mask)
        : "memory");
}

// Loads from matrix `batch` of a batched operand: the third coordinate.
__device__ __forceinline__ void cp_async_bulk_tensor_load_3d(unsigned to, const TensorMap& map, int x, int y, int batch,
                                                             unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
        "[%5];" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(batch), "r"(barrier)
        : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_load_3d_multicast(unsigned to, const TensorMap& map, int x, int y,
                                                                       int batch, unsigned barrier,
                                                                       unsigned short cta_mask) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(batch), "r"(barrier), "h"(cta_mask)
        : "memory");
}

// Brings the box at (x, y) into L2.
__device__ __forceinline__ void cp_async_bulk_tensor_prefetch_2d(const TensorMap& map, int x, int y) {
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(&map), "r"(x), "r"(y)
                 : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_prefetch_3d(const TensorMap& map, int x, int y, int batch) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(&map), "r"(x), "r"(y),
                 "r"(batch)
                 : "memory");
}

// Stores shared memory to the box at (x, y); elements outside the matrix are not written.
__device__ __forceinline__ void cp_async_bulk_tensor_store_2d(const TensorMap& map, int x, int y, unsigned from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x),
                 "r"(y), "r"(from)
                 : "memory");
}

__device__ __forceinline__ void cp_async_bulk_tensor_store_3d(const TensorMap& map, int x, int y, int batch,
                                                              unsigned from) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
                 "r"(x), "r"(y), "r"(batch), "r"(from)
                 : "memory");
}

// Commits this thread's bulk stores since its last commit as one group.
__device__ __forceinline__ void cp_async_bulk_commit_group() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most PENDING of this thread's groups have still to read their source in shared memory.
template <int PENDING>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// TMA and wgmma access memory through the async proxy, loads and stores through the generic proxy. This fence orders
// the thread's earlier generic accesses to shared memory before later ones of the async proxy: PTX ISA, "Async proxy".
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// The same for global memory. The writer executes it before it signals, the reader after it has seen the signal.
__device__ __forceinline__ void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

}  // namespace warptile
