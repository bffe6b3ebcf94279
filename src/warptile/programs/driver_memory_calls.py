"""Functions of the CUDA driver that copy and set memory and tell what an address is of."""

from __future__ import annotations

from warptile.emulator.memory.accesses import GLOBAL_BASE
from warptile.programs.driver_modules import CONTEXT
from warptile.programs.graphs import NodeType
from warptile.programs.library_calls import (
    INVALID_VALUE,
    NOT_SUPPORTED,
    Call,
    CallError,
    Handler,
    Work,
    answers,
    unsigned,
)
from warptile.programs.memory_calls import (
    fill,
    memcpy_2d,
    memcpy_anywhere,
    memcpy_on_device,
    memcpy_to_device,
    memcpy_to_host,
    pointer_kind,
)  # fmt: skip

_COPY_2D = "<2QI4x4Q2QI4x4Q2Q"
"""``CUDA_MEMCPY2D``."""

_ON_HOST, _ON_DEVICE, _IN_ARRAY, _UNIFIED = 1, 2, 3, 4
"""Of ``CUmemorytype``."""

_CONTEXT_OF, _TYPE, _DEVICE_POINTER, _HOST_POINTER, _MANAGED, _ORDINAL = 1, 2, 3, 4, 8, 9
_RANGE_START, _RANGE_BYTES, _MAPPED = 11, 12, 13
"""Of ``CUpointer_attribute``."""

_ANY_KIND = 4
"""``cudaMemcpyDefault``."""

_MANAGED_KIND = 3
"""``cudaMemoryTypeManaged``."""


def _answers_async(name: str, copy: Handler) -> None:
    @answers(name)
    def copy_async(call: Call, target: int, source: int, size: int) -> None:
        call.do(lambda now: copy(now, target, source, size))


_answers_async("cuMemcpyHtoDAsync_v2", memcpy_to_device)
_answers_async("cuMemcpyDtoHAsync_v2", memcpy_to_host)
_answers_async("cuMemcpyDtoDAsync_v2", memcpy_on_device)
_answers_async("cuMemcpyAsync", memcpy_anywhere)


@answers("cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2")
def memcpy_planes(call: Call, parameters: int) -> None:
    """``cuMemcpy2D(const CUDA_MEMCPY2D*)``, between host and device, not of arrays."""
    _planes(call, parameters)(call)


@answers("cuMemcpy2DAsync_v2")
def memcpy_planes_async(call: Call, parameters: int) -> None:
    """``cuMemcpy2DAsync(const CUDA_MEMCPY2D*, CUstream)``."""
    call.do(_planes(call, parameters))


def _planes(call: Call, parameters: int) -> Work:
    """The copy that a ``CUDA_MEMCPY2D`` says."""
    found = call.memory.unpack(_COPY_2D, parameters)
    source, target = _corner(found[:7]), _corner(found[7:14])
    width, height = found[14:]
    pitches = found[13] or width, found[6] or width
    return lambda now: memcpy_2d(now, target, pitches[0], source, pitches[1], width, height, _ANY_KIND)


def _corner(side: tuple[int, ...]) -> int:
    """Where a copy begins, of one half of a ``CUDA_MEMCPY2D``."""
    x, y, kind, host, device, _, pitch = side
    if kind not in (_ON_HOST, _ON_DEVICE, _UNIFIED):
        raise CallError(NOT_SUPPORTED, "copies of arrays by the driver's functions are not emulated")
    return (host if kind == _ON_HOST else device) + y * pitch + x


def _answers_memset(names: tuple[str, str], bytes_each: int) -> None:
    """Answer the functions that set ``count`` values, of so many bytes each, and set them in a stream."""

    @answers(names[0])
    def set_values(call: Call, address: int, value: int, count: int) -> None:
        call.gpu.check()
        fill(call, address, unsigned(value).to_bytes(4, "little")[:bytes_each], count)

    @answers(names[1])
    def set_values_async(call: Call, address: int, value: int, count: int) -> None:
        call.do(lambda now: set_values(now, address, value, count), NodeType.MEMSET)


_answers_memset(("cuMemsetD16_v2", "cuMemsetD16Async"), 2)
_answers_memset(("cuMemsetD32_v2", "cuMemsetD32Async"), 4)


@answers("cuMemGetAddressRange_v2")
def get_address_range(call: Call, start: int, size: int, address: int) -> None:
    """``cuMemGetAddressRange(CUdeviceptr*, size_t*, CUdeviceptr)``."""
    begins, length = _allocation(call, address)
    if start:
        call.int64(start, begins)
    if size:
        call.int64(size, length)


@answers("cuPointerGetAttribute")
def pointer_get_attribute(call: Call, where: int, attribute: int, address: int) -> None:
    """``cuPointerGetAttribute(void*, CUpointer_attribute, CUdeviceptr)``."""
    if not pointer_kind(call, address)[0]:
        raise CallError(INVALID_VALUE, f"{address:#x} lies in no memory of CUDA")
    _write_attribute(call, where, unsigned(attribute), address)


@answers("cuPointerGetAttributes")
def pointer_get_attributes(call: Call, count: int, attributes: int, values: int, address: int) -> None:
    """``cuPointerGetAttributes(unsigned, CUpointer_attribute*, void**, CUdeviceptr)``: zeros for other memory."""
    number = unsigned(count)
    kinds, places = call.memory.unpack(f"<{number}I", attributes), call.memory.unpack(f"<{number}Q", values)
    for kind, where in zip(kinds, places, strict=True):
        _write_attribute(call, where, kind, address)


def _write_attribute(call: Call, where: int, attribute: int, address: int) -> None:
    kind, on_gpu, on_host = pointer_kind(call, address)
    wide = {_CONTEXT_OF: CONTEXT if kind else 0, _DEVICE_POINTER: on_gpu, _HOST_POINTER: on_host}
    if attribute in (_RANGE_START, _RANGE_BYTES):
        begins = _allocation(call, on_gpu) if kind else (0, 0)
        call.int64(where, begins[attribute - _RANGE_START])
    elif attribute in wide:
        call.int64(where, wide[attribute])
    elif attribute == _TYPE:
        call.int32(where, _ON_DEVICE if kind in (_ON_DEVICE, _MANAGED_KIND) else kind)
    elif attribute == _ORDINAL:
        call.int32(where, 0 if kind else -2)
    elif attribute in (_MANAGED, _MAPPED):
        call.memory.write(where, bytes([kind == _MANAGED_KIND if attribute == _MANAGED else bool(kind)]))
    else:
        raise CallError(NOT_SUPPORTED, f"attribute {attribute} of a pointer is not emulated")


def _allocation(call: Call, address: int) -> tuple[int, int]:
    """Where the allocation begins that an address lies in, and its bytes."""
    home = call.gpu.memory.home(address, 1, call.function)
    return GLOBAL_BASE + home.start, home.size
