// TMA: boxes of a matrix between global and shared memory, moved by the copy engine (sm_90).
// PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk.tensor".
#pragma once

namespace warptile {

// A tensor map (CUtensorMap): which matrix, how large a box, how its rows are permuted. A kernel's parameter.
struct __align__(64) TensorMap {
    unsigned char fields[128];
};

__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies the box at (x, y), x along contiguous elements, to shared memory. Its bytes count for `barrier`; what lies
// outside the matrix is zero, and counts as well.
__device__ __forceinline__ void load_box(unsigned to, const TensorMap& map, int x, int y, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// The same of bytes that nobody asks for again: they are the first to leave L2.
__device__ __forceinline__ void load_box_once(unsigned to, const TensorMap& map, int x, int y, unsigned barrier) {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier), "l"(policy)
        : "memory");
}

// The same into the shared memory of every block of the cluster whose bit of `blocks` is set, at the same address; there
// the bytes count for that block's own barrier.
__device__ __forceinline__ void load_box(unsigned to, const TensorMap& map, int x, int y, unsigned barrier,
                                         unsigned short blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(blocks)
        : "memory");
}

// The same two of a matrix of a batch: the third coordinate is its number.
__device__ __forceinline__ void load_box(unsigned to, const TensorMap& map, int x, int y, int matrix, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
        "[%5];" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(matrix), "r"(barrier)
        : "memory");
}
__device__ __forceinline__ void load_box(unsigned to, const TensorMap& map, int x, int y, int matrix, unsigned barrier,
                                         unsigned short blocks) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(matrix), "r"(barrier), "h"(blocks)
        : "memory");
}

// Copies shared memory to the box at (x, y); what lies outside the matrix is left out.
__device__ __forceinline__ void store_box(const TensorMap& map, int x, int y, unsigned from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x),
                 "r"(y), "r"(from)
                 : "memory");
}

__device__ __forceinline__ void store_box(const TensorMap& map, int x, int y, int matrix, unsigned from) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
                 "r"(x), "r"(y), "r"(matrix), "r"(from)
                 : "memory");
}

// Stores since the last call become one group.
__device__ __forceinline__ void store_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most GROUPS groups of this thread have still to read shared memory.
template <int GROUPS>
__device__ __forceinline__ void store_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(GROUPS) : "memory");
}

// Shows this thread's writes to shared memory to the copy engine and to the tensor cores.
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// The same for global memory: plain writes before it and tensor copies behind it, on either side of what orders them.
__device__ __forceinline__ void fence_async_proxy_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

}  // namespace warptile
