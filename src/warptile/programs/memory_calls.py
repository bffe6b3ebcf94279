"""Calls that allocate, copy and set memory."""

from __future__ import annotations

from warptile.emulator.memory.accesses import GLOBAL_BASE
from warptile.errors import UninitializedRead
from warptile.programs.device_calls import check_device
from warptile.programs.graphs import NodeType
from warptile.programs.library_calls import INVALID_VALUE, Call, CallError, Work, answers, signed, unsigned
from warptile.programs.memory_size import device_bytes

_HOST_TO_HOST, _HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE, _DEFAULT = range(5)
_PITCH_BYTES = 512
_PAGE_BYTES = 4096
_OUT_OF_MEMORY = 2
_ALREADY_REGISTERED, _NOT_REGISTERED = 712, 713

_MMAP, _MUNMAP = 9, 11
_READ_WRITE = 3
_PRIVATE_ANONYMOUS = 0x2 | 0x20
"""``MAP_PRIVATE | MAP_ANONYMOUS``."""
_PRIVATE_ANONYMOUS_AT = _PRIVATE_ANONYMOUS | 0x100000
"""``MAP_FIXED_NOREPLACE`` as well."""


@answers("cudaMalloc", "cuMemAlloc_v2", "cuMemAlloc")
def malloc(call: Call, where: int, size: int) -> None:
    """``cudaMalloc(void**, size_t)``."""
    call.gpu.check()
    call.int64(where, _allocated(call, size))


@answers("cudaMallocAsync", "cuMemAllocAsync")
def malloc_async(call: Call, where: int, size: int, stream: int) -> None:
    """``cudaMallocAsync(void**, size_t, cudaStream_t)``."""
    if call.gpu.capture is None:
        malloc(call, where, size)
        return
    address, work = graph_memory(call, size)
    call.do(work, NodeType.ALLOCATE)
    call.int64(where, address)


def graph_memory(call: Call, size: int) -> tuple[int, Work]:
    """An address, and the work that allocates memory there, which launches of a graph do."""
    if not size:
        raise CallError(INVALID_VALUE, "no bytes")
    address = _allocated(call, size)
    call.gpu.memory.free(address, keep_place=True)
    call.gpu.graph_memory[address] = None

    def allocate(now: Call) -> None:
        if is_live(now, address):
            raise CallError(INVALID_VALUE, "memory of the graph is allocated twice")
        now.gpu.memory.allocate_again(address)
        now.gpu.graph_memory[address] = now.gpu.launched_graph

    return address, allocate


def is_live(call: Call, address: int) -> bool:
    """Whether an allocation on the device begins at an address."""
    home = call.gpu.memory.space.around(address - GLOBAL_BASE)
    return home is not None and home.start == address - GLOBAL_BASE


@answers("cudaMallocPitch", "cuMemAllocPitch_v2")
def malloc_pitch(call: Call, where: int, pitch: int, width: int, height: int) -> None:
    """``cudaMallocPitch(void**, size_t* pitch, size_t width, size_t height)``."""
    call.gpu.check()
    row = -(-width // _PITCH_BYTES) * _PITCH_BYTES
    call.int64(where, _allocated(call, row * height))
    call.int64(pitch, row)


def _allocated(call: Call, size: int) -> int:
    if not size:
        return 0
    _check_room(call, size)
    return call.gpu.memory.allocate(call.gpu.allocation_name(call.function), size)


@answers("cudaFree", "cuMemFree_v2", "cuMemFree")
def free(call: Call, address: int) -> None:
    """``cudaFree(void*)``, also of managed memory."""
    call.gpu.check()
    if not address:
        return
    size = call.gpu.shared.pop(address, None)
    call.gpu.pinned.discard(address)
    call.gpu.memory.free(address, keep_place=address in call.gpu.graph_memory)
    if size is not None:
        call.system_call(_MUNMAP, address, size)


@answers("cudaFreeAsync", "cuMemFreeAsync")
def free_async(call: Call, address: int, stream: int) -> None:
    """``cudaFreeAsync(void*, cudaStream_t)``."""
    call.do(lambda now: free(now, address), NodeType.FREE)


@answers("cudaMallocManaged", "cuMemAllocManaged")
def malloc_managed(call: Call, where: int, size: int, flags: int) -> None:
    """``cudaMallocManaged(void**, size_t, unsigned int)``."""
    call.int64(where, _shared(call, size))


@answers("cudaMallocHost", "cuMemAllocHost_v2")
def malloc_host(call: Call, where: int, size: int) -> None:
    """``cudaMallocHost(void**, size_t)``: kernels may use it at the same address."""
    call.int64(where, _pinned(call, size))


@answers("cudaHostAlloc", "cuMemHostAlloc")
def host_alloc(call: Call, where: int, size: int, flags: int) -> None:
    """``cudaHostAlloc(void**, size_t, unsigned int)``."""
    call.int64(where, _pinned(call, size))


def _pinned(call: Call, size: int) -> int:
    address = _shared(call, size)
    call.gpu.pinned.add(address)
    return address


@answers("cudaFreeHost", "cuMemFreeHost")
def free_host(call: Call, address: int) -> None:
    """``cudaFreeHost(void*)``."""
    free(call, address)


@answers("cudaHostGetDevicePointer", "cuMemHostGetDevicePointer_v2")
def host_get_device_pointer(call: Call, where: int, address: int, flags: int) -> None:
    """``cudaHostGetDevicePointer(void**, void*, unsigned int)``."""
    if _holder(call, address):
        call.int64(where, address)
        return
    start = _registered(call, address)
    if start is None:
        raise CallError(
            INVALID_VALUE, f"{address:#x} is no memory of cudaMallocHost, cudaHostAlloc or cudaHostRegister"
        )
    size, device = call.gpu.registered[start]
    if not device:
        device = call.gpu.memory.allocate(call.gpu.allocation_name("cudaHostRegister"), size)
        call.gpu.memory.home(device, size, "share").read_by_host = True
        call.gpu.registered[start] = size, device
    call.int64(where, device + address - start)


@answers("cudaHostRegister", "cuMemHostRegister_v2")
def host_register(call: Call, address: int, size: int, flags: int) -> None:
    """``cudaHostRegister(void*, size_t, unsigned int)``: kernels use it where `cudaHostGetDevicePointer` says."""
    if not address or not size:
        raise CallError(INVALID_VALUE, f"{size} bytes at {address:#x}")
    if _registered(call, address) is not None:
        raise CallError(_ALREADY_REGISTERED, f"{address:#x}")
    call.gpu.registered[address] = size, 0


@answers("cudaHostUnregister", "cuMemHostUnregister")
def host_unregister(call: Call, address: int) -> None:
    """``cudaHostUnregister(void*)``."""
    if address not in call.gpu.registered:
        raise CallError(_NOT_REGISTERED, f"{address:#x}")
    _, device = call.gpu.registered.pop(address)
    if device:
        call.gpu.memory.free(device)


def _registered(call: Call, address: int) -> int | None:
    """Where the registered memory begins that an address lies in."""
    return next((at for at, (size, _) in call.gpu.registered.items() if at <= address < at + size), None)


@answers("cudaMemPrefetchAsync", "cudaMemAdvise", "cuMemPrefetchAsync_v2", "cuMemAdvise_v2")
def hint(call: Call) -> None:
    """Hints change nothing."""


def _shared(call: Call, size: int) -> int:
    """Memory that has one address on the host and on the device."""
    call.gpu.check()
    size = -(-max(size, 1) // _PAGE_BYTES) * _PAGE_BYTES
    _check_room(call, size)
    memory = call.gpu.memory
    address = memory.allocate(call.gpu.allocation_name(call.function), size, alignment=_PAGE_BYTES)
    try:
        _map(call, address, size)
    except CallError:
        memory.free(address)
        raise
    memory.write(address, bytes(size))
    _share(call, address, size)
    return address


def _share(call: Call, address: int, size: int) -> None:
    """Note memory that the host reads and writes as it likes."""
    call.gpu.shared[address] = size
    call.gpu.memory.home(address, size, "share").read_by_host = True


def _map(call: Call, address: int, size: int) -> None:
    """Give the process memory of its own at the pages of some bytes, at the device's addresses.

    Raises:
        CallError: something else is there.
    """
    got = signed(call.system_call(_MMAP, address, size, _READ_WRITE, _PRIVATE_ANONYMOUS_AT, (1 << 64) - 1, 0), 64)
    if got != address:
        raise CallError(_OUT_OF_MEMORY, f"the process cannot map {size} bytes at {address:#x}")


def room_on_host(call: Call, size: int) -> int:
    """Address of new memory of the process."""
    got = signed(call.system_call(_MMAP, 0, size, _READ_WRITE, _PRIVATE_ANONYMOUS, (1 << 64) - 1, 0), 64)
    if got < 0:
        raise CallError(_OUT_OF_MEMORY, f"the process cannot map {size} bytes")
    return got


@answers("__cudaRegisterManagedVar")
def register_managed_variable(
    call: Call, handle: int, host: int, device: int, name: int, external: int, size: int
) -> None:
    """``__cudaRegisterManagedVar(handle, void** hostVar, deviceAddress, deviceName, ext, size, ...)``: the variable has
    one address on the host and on the device, which is written to ``*hostVar``."""
    call.gpu.variables[host] = handle, call.memory.string(name), size
    address, _ = call.gpu.symbol(host)
    for page in range(address - address % _PAGE_BYTES, address + size, _PAGE_BYTES):
        if page not in call.gpu.variable_pages:
            _map(call, page, _PAGE_BYTES)
            call.gpu.variable_pages.add(page)
    _share(call, address, size)
    call.memory.write(address, call.gpu.memory.read(address, size))
    call.int64(host, address)


def to_device(call: Call) -> None:
    """Give the device what the host has written to memory that they share."""
    for address, size in call.gpu.shared.items():
        call.gpu.memory.write(address, call.memory.read(address, size))
    for address, (size, device) in call.gpu.registered.items():
        if device:
            call.gpu.memory.write(device, call.memory.read(address, size))


def to_host(call: Call) -> None:
    """Give the host what the device has written to memory that they share."""
    for address, size in call.gpu.shared.items():
        call.memory.write(address, call.gpu.memory.read(address, size))
    for address, (size, device) in call.gpu.registered.items():
        if device:
            call.memory.write(address, call.gpu.memory.read(device, size))


def _holder(call: Call, address: int) -> int | None:
    """The allocation shared with the host that an address lies in."""
    return next((at for at, size in call.gpu.shared.items() if at <= address < at + size), None)


def on_device(call: Call, address: int) -> bool:
    """Whether an address is one of device memory that the host cannot see."""
    offset = address - GLOBAL_BASE
    return 0 <= offset < len(call.gpu.memory.space.data) and _holder(call, address) is None


def _read(call: Call, address: int, size: int, *, device: bool) -> bytes:
    if not device or _holder(call, address) is not None:
        return call.memory.read(address, size)
    content = call.gpu.memory.read(address, size)
    found = call.gpu.memory.look_at_unwritten(address, size)
    if found is None:
        return content
    name, copied = call.gpu.memory.home(address, size, "").name, found.copied
    said = f"{found.count} of the {size} bytes copied from {name} were never written"
    if found.gaps:
        said += f" ({found.gaps}, which may be padding of structs)"
    if copied is None:
        call.gpu.warn(call.function, said)
    elif not found.value:
        said += f": a kernel has copied there what was {copied.read}, which nothing has written"
        call.gpu.warn(call.function, said)
    else:
        said += (
            f": {copied.thread} has copied there, with {copied.text}, what was {copied.read}, which nothing has written"
        )
        call.gpu.report(UninitializedRead(
            f"{call.function}: {said}", kernel=copied.kernel, location=copied.location, first=copied.first
        ))  # fmt: skip
    return content


def copy(call: Call, target: int, source: int, size: int, kind: int) -> None:
    """Copy bytes between host and device, either way.

    Raises:
        CallError: a kind of copy that there is not, or memory that is not where the kind says.
    """
    call.gpu.check()
    if kind > _DEFAULT:
        raise CallError(21, f"cudaMemcpyKind {kind}")
    from_device = on_device(call, source) if kind == _DEFAULT else kind in (_DEVICE_TO_HOST, _DEVICE_TO_DEVICE)
    onto_device = on_device(call, target) if kind == _DEFAULT else kind in (_HOST_TO_DEVICE, _DEVICE_TO_DEVICE)
    shared = [_holder(call, each) is not None for each in (source, target)]
    if from_device and onto_device and not any(shared):
        call.gpu.memory.copy(target, source, size)
        return
    content = _read(call, source, size, device=from_device)
    if onto_device and not shared[1]:
        call.gpu.memory.write(target, content)
    else:
        call.memory.write(target, content)


@answers("cudaMemcpy")
def memcpy(call: Call, target: int, source: int, size: int, kind: int) -> None:
    """``cudaMemcpy(void*, const void*, size_t, cudaMemcpyKind)``."""
    copy(call, target, source, size, unsigned(kind))


@answers("cudaMemcpyAsync")
def memcpy_async(call: Call, target: int, source: int, size: int, kind: int) -> None:
    """``cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t)``."""
    call.do(lambda now: copy(now, target, source, size, unsigned(kind)))


@answers("cudaMemcpyPeer")
def memcpy_peer(call: Call, target: int, target_device: int, source: int, source_device: int, size: int) -> None:
    """``cudaMemcpyPeer(void*, int, const void*, int, size_t)``: there is one GPU."""
    check_device(target_device)
    check_device(source_device)
    copy(call, target, source, size, _DEVICE_TO_DEVICE)


@answers("cudaMemcpyPeerAsync")
def memcpy_peer_async(call: Call, target: int, target_device: int, source: int, source_device: int, size: int) -> None:
    """``cudaMemcpyPeerAsync(void*, int, const void*, int, size_t, cudaStream_t)``."""
    call.do(lambda now: memcpy_peer(now, target, target_device, source, source_device, size))


@answers("cuMemcpyHtoD_v2")
def memcpy_to_device(call: Call, target: int, source: int, size: int) -> None:
    """``cuMemcpyHtoD(CUdeviceptr, const void*, size_t)``."""
    copy(call, target, source, size, _HOST_TO_DEVICE)


@answers("cuMemcpyDtoH_v2")
def memcpy_to_host(call: Call, target: int, source: int, size: int) -> None:
    """``cuMemcpyDtoH(void*, CUdeviceptr, size_t)``."""
    copy(call, target, source, size, _DEVICE_TO_HOST)


@answers("cuMemcpyDtoD_v2")
def memcpy_on_device(call: Call, target: int, source: int, size: int) -> None:
    """``cuMemcpyDtoD(CUdeviceptr, CUdeviceptr, size_t)``."""
    copy(call, target, source, size, _DEVICE_TO_DEVICE)


@answers("cuMemcpy")
def memcpy_anywhere(call: Call, target: int, source: int, size: int) -> None:
    """``cuMemcpy(CUdeviceptr, CUdeviceptr, size_t)``."""
    copy(call, target, source, size, _DEFAULT)


@answers("cudaMemcpy2DAsync")
def memcpy_2d_async(
    call: Call, target: int, target_pitch: int, source: int, source_pitch: int, width: int, height: int, kind: int
) -> None:
    """``cudaMemcpy2DAsync(dst, dpitch, src, spitch, width, height, kind, stream)``."""
    call.do(lambda now: memcpy_2d(now, target, target_pitch, source, source_pitch, width, height, kind))


@answers("cudaMemcpy2D")
def memcpy_2d(
    call: Call, target: int, target_pitch: int, source: int, source_pitch: int, width: int, height: int, kind: int
) -> None:
    """``cudaMemcpy2D(dst, dpitch, src, spitch, width, height, kind)``."""
    for row in range(height):
        copy(call, target + row * target_pitch, source + row * source_pitch, width, unsigned(kind))


@answers("cudaMemcpyToSymbolAsync")
def memcpy_to_symbol_async(call: Call, symbol: int, source: int, size: int, offset: int, kind: int) -> None:
    """``cudaMemcpyToSymbolAsync(symbol, src, count, offset, kind, stream)``."""
    call.do(lambda now: memcpy_to_symbol(now, symbol, source, size, offset, kind))


@answers("cudaMemcpyFromSymbolAsync")
def memcpy_from_symbol_async(call: Call, target: int, symbol: int, size: int, offset: int, kind: int) -> None:
    """``cudaMemcpyFromSymbolAsync(dst, symbol, count, offset, kind, stream)``."""
    call.do(lambda now: memcpy_from_symbol(now, target, symbol, size, offset, kind))


@answers("cudaMemcpyToSymbol")
def memcpy_to_symbol(call: Call, symbol: int, source: int, size: int, offset: int, kind: int) -> None:
    """``cudaMemcpyToSymbol(symbol, src, count, offset, kind)``."""
    copy(call, call.gpu.symbol(symbol)[0] + offset, source, size, unsigned(kind))


@answers("cudaMemcpyFromSymbol")
def memcpy_from_symbol(call: Call, target: int, symbol: int, size: int, offset: int, kind: int) -> None:
    """``cudaMemcpyFromSymbol(dst, symbol, count, offset, kind)``."""
    copy(call, target, call.gpu.symbol(symbol)[0] + offset, size, unsigned(kind))


@answers("cudaGetSymbolAddress")
def get_symbol_address(call: Call, where: int, symbol: int) -> None:
    """``cudaGetSymbolAddress(void**, const void*)``."""
    call.int64(where, call.gpu.symbol(symbol)[0])


@answers("cudaGetSymbolSize")
def get_symbol_size(call: Call, where: int, symbol: int) -> None:
    """``cudaGetSymbolSize(size_t*, const void*)``."""
    call.int64(where, call.gpu.symbol(symbol)[1])


@answers("cudaMemsetAsync", "cuMemsetD8Async")
def memset_async(call: Call, address: int, value: int, size: int) -> None:
    """``cudaMemsetAsync(void*, int, size_t, cudaStream_t)``."""
    call.do(lambda now: memset(now, address, value, size), NodeType.MEMSET)


@answers("cudaMemset", "cuMemsetD8_v2")
def memset(call: Call, address: int, value: int, size: int) -> None:
    """``cudaMemset(void*, int, size_t)``."""
    call.gpu.check()
    fill(call, address, bytes([value & 0xFF]), size)


def fill(call: Call, address: int, pattern: bytes, count: int) -> None:
    """Write the same bytes ``count`` times to memory of the device."""
    if _holder(call, address) is not None:
        call.memory.write(address, pattern * count)
    else:
        call.gpu.memory.fill(address, pattern, count)


@answers("cudaMemset2DAsync")
def memset_2d_async(call: Call, address: int, pitch: int, value: int, width: int, height: int) -> None:
    """``cudaMemset2DAsync(void*, size_t pitch, int, size_t width, size_t height, cudaStream_t)``."""
    call.do(lambda now: memset_2d(now, address, pitch, value, width, height), NodeType.MEMSET)


@answers("cudaMemset2D")
def memset_2d(call: Call, address: int, pitch: int, value: int, width: int, height: int) -> None:
    """``cudaMemset2D(void*, size_t pitch, int, size_t width, size_t height)``."""
    for row in range(height):
        memset(call, address + row * pitch, value, width)


@answers("cudaMemGetInfo", "cuMemGetInfo_v2")
def mem_get_info(call: Call, free_bytes: int, total: int) -> None:
    """``cudaMemGetInfo(size_t*, size_t*)``."""
    call.int64(free_bytes, max(device_bytes() - _used(call), 0))
    call.int64(total, device_bytes())


def _used(call: Call) -> int:
    return sum(home.size for home in call.gpu.memory.space.allocations)


def _check_room(call: Call, size: int) -> None:
    """Raise unless the GPU has so many bytes left.

    Raises:
        CallError: it has not.
    """
    if size + len(call.gpu.memory.space.data) <= device_bytes():  # known without adding up all allocations
        return
    free = max(device_bytes() - _used(call), 0)
    if size > free:
        raise CallError(
            _OUT_OF_MEMORY,
            f"{size} bytes; {free} are left of the emulated GPU's {device_bytes()}, a quarter of this machine's memory",
        )


@answers("cudaPointerGetAttributes")
def pointer_get_attributes(call: Call, where: int, address: int) -> None:
    """``cudaPointerGetAttributes``: type, device, both addresses."""
    kind, on_gpu, on_host = pointer_kind(call, address)
    call.int32(where, kind, 0)
    call.int64(where + 8, on_gpu, on_host)


def pointer_kind(call: Call, address: int) -> tuple[int, int, int]:
    """Type of the memory at an address (0 unregistered, 1 host, 2 device, 3 managed), and the address on the device and
    on the host."""
    device, holder, start = on_device(call, address), _holder(call, address), _registered(call, address)
    pinned = start is not None or holder in call.gpu.pinned
    kind = 2 if device else 1 if pinned else 3 if holder is not None else 0
    on_gpu = address if device or holder is not None else 0
    if start is not None and call.gpu.registered[start][1]:
        on_gpu = call.gpu.registered[start][1] + address - start
    return kind, on_gpu, 0 if device else address
