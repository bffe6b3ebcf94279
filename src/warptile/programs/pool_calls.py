"""Calls about memory pools. Allocations from a pool are made and freed when they are asked for, like all others: what a
pool is told to keep, reuse or release changes nothing."""

from __future__ import annotations

from warptile.programs.library_calls import INVALID_VALUE, NOT_SUPPORTED, Call, CallError, answers, unsigned
from warptile.programs.memory_calls import malloc_async

_FIRST_FLAG, _LAST_FLAG, _THRESHOLD, _RESERVED, _USED_HIGH = 1, 3, 4, 5, 8
"""Enumerators of ``cudaMemPoolAttr``: three flags of reuse, of type ``int``, then numbers of 64 bits."""


@answers("cudaDeviceGetDefaultMemPool", "cudaDeviceGetMemPool", "cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool")
def device_get_pool(call: Call, where: int, device: int) -> None:
    """``cudaDeviceGetDefaultMemPool(cudaMemPool_t*, int)``."""
    gpu = call.gpu
    if not gpu.pools:
        _make(call)
    call.int64(where, gpu.pool or next(iter(gpu.pools)))


@answers("cudaDeviceSetMemPool", "cuDeviceSetMemPool")
def device_set_pool(call: Call, device: int, pool: int) -> None:
    """``cudaDeviceSetMemPool(int, cudaMemPool_t)``."""
    _pool(call, pool)
    call.gpu.pool = pool


@answers("cudaMemPoolCreate", "cuMemPoolCreate")
def pool_create(call: Call, where: int, properties: int) -> None:
    """``cudaMemPoolCreate(cudaMemPool_t*, const cudaMemPoolProps*)``."""
    if not call.gpu.pools:
        _make(call)  # the default one is the first
    call.int64(where, _make(call))


@answers("cudaMemPoolDestroy", "cuMemPoolDestroy")
def pool_destroy(call: Call, pool: int) -> None:
    """``cudaMemPoolDestroy(cudaMemPool_t)``: what was allocated from it stays until it is freed."""
    _pool(call, pool)
    if pool == next(iter(call.gpu.pools)):
        raise CallError(INVALID_VALUE, "the default pool of a device cannot be destroyed")
    del call.gpu.pools[pool]
    call.gpu.pool = 0 if call.gpu.pool == pool else call.gpu.pool


@answers("cudaMemPoolTrimTo", "cuMemPoolTrimTo")
def pool_trim(call: Call, pool: int, least: int) -> None:
    """``cudaMemPoolTrimTo(cudaMemPool_t, size_t)``: there is nothing that a pool keeps."""
    _pool(call, pool)


@answers("cudaMemPoolSetAttribute", "cuMemPoolSetAttribute")
def pool_set_attribute(call: Call, pool: int, attribute: int, where: int) -> None:
    """``cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*)``."""
    values, number = _pool(call, pool), unsigned(attribute)
    if _FIRST_FLAG <= number <= _LAST_FLAG:
        (values[number],) = call.memory.unpack("<i", where)
    elif number == _THRESHOLD:
        (values[number],) = call.memory.unpack("<Q", where)
    elif not _RESERVED <= number <= _USED_HIGH:
        raise CallError(INVALID_VALUE, f"{number} is no attribute of a pool")


@answers("cudaMemPoolGetAttribute", "cuMemPoolGetAttribute")
def pool_get_attribute(call: Call, pool: int, attribute: int, where: int) -> None:
    """``cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*)``."""
    values, number = _pool(call, pool), unsigned(attribute)
    if _RESERVED <= number <= _USED_HIGH:
        raise CallError(NOT_SUPPORTED, "how much memory a pool has is not emulated")
    if number not in values:
        raise CallError(INVALID_VALUE, f"{number} is no attribute of a pool")
    if number == _THRESHOLD:
        call.int64(where, values[number])
    else:
        call.int32(where, values[number])


@answers("cudaMallocFromPoolAsync", "cuMemAllocFromPoolAsync")
def malloc_from_pool(call: Call, where: int, size: int, pool: int, stream: int) -> None:
    """``cudaMallocFromPoolAsync(void**, size_t, cudaMemPool_t, cudaStream_t)``."""
    _pool(call, pool)
    malloc_async(call, where, size, stream)


def _make(call: Call) -> int:
    handle = call.gpu.handle()
    call.gpu.pools[handle] = dict.fromkeys(range(_FIRST_FLAG, _LAST_FLAG + 1), 1) | {_THRESHOLD: 0}
    return handle


def _pool(call: Call, handle: int) -> dict[int, int]:
    """The attributes of a pool."""
    found = call.gpu.pools.get(handle)
    if found is None:
        raise CallError(INVALID_VALUE, f"{handle:#x} is no memory pool")
    return found
