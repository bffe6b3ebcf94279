"""Calls about arrays, and about texture and surface objects."""

from __future__ import annotations

from dataclasses import replace

from warptile.launch.texture import BORDER, Texture
from warptile.programs.arrays import array_of, kind_with_arrays
from warptile.programs.graphs import NodeType
from warptile.programs.library_calls import INVALID_VALUE, NOT_SUPPORTED, Call, CallError, Work, answers, signed
from warptile.programs.memory_calls import copy

_CHANNELS = "<4iI"
"""``cudaChannelFormatDesc``: bits of x, y, z and w, and what they are."""

_LAYERED, _CUBE = 1, 4
_PITCH_BYTES = 32
_ARRAY, _MIPMAPPED, _LINEAR, _PITCHED = range(4)
_RESOURCE_AT = 8
_TEXTURE = "<3I3i4fiI"
"""``cudaTextureDesc``, as far as it is looked at: address modes, filter, reading, sRGB, border, whether coordinates are
normalized, anisotropy."""


# --- arrays ----------------------------------------------------------------------------------------------------------


@answers("cudaCreateChannelDesc")
def create_channel_desc(call: Call, where: int, x: int, y: int, z: int, w: int, kind: int) -> int:
    """``cudaChannelFormatDesc cudaCreateChannelDesc(int, int, int, int, kind)``, which C returns through memory."""
    call.int32(where, *map(signed, (x, y, z, w, kind)))
    return where


def _channels(call: Call, where: int) -> tuple[int, int, int]:
    """Channels, bits of each, and their kind."""
    *bits, kind = call.memory.unpack(_CHANNELS, where)
    given = [each for each in bits if each]
    if given != bits[: len(given)] or len(given) not in (1, 2, 4) or len(set(given)) > 1 or given[0] not in (8, 16, 32):
        raise CallError(INVALID_VALUE, f"elements with {bits} bits; they have 1, 2 or 4 times 8, 16 or 32")
    if kind > 2 or (kind == 2 and given[0] == 8):
        raise CallError(NOT_SUPPORTED, f"elements of kind {kind} (cudaChannelFormatKind) are not emulated")
    return len(given), given[0], kind


@answers("cudaMallocArray")
def malloc_array(call: Call, where: int, desc: int, width: int, height: int, flags: int) -> None:
    """``cudaMallocArray(cudaArray_t*, const cudaChannelFormatDesc*, size_t width, size_t height, unsigned)``."""
    _make_array(call, where, desc, (width, height, 0), flags)


@answers("cudaMalloc3DArray")
def malloc_3d_array(call: Call, where: int, desc: int, flags: int) -> None:
    """``cudaMalloc3DArray(cudaArray_t*, const cudaChannelFormatDesc*, cudaExtent, unsigned)``."""
    width, height, depth = call.memory.unpack("<3Q", call.stack)
    _make_array(call, where, desc, (width, height, depth), flags)


def _make_array(call: Call, where: int, desc: int, extents: tuple[int, int, int], flags: int) -> None:
    call.gpu.check()
    channels, bits, kind = _channels(call, desc)
    if flags & _CUBE:
        raise CallError(NOT_SUPPORTED, "cube maps are not emulated")
    width, height, depth = extents
    if not width or (flags & _LAYERED and not depth):
        raise CallError(INVALID_VALUE, f"an array of {width} x {height} x {depth} elements")
    pitch = -(-width * channels * bits // 8 // _PITCH_BYTES) * _PITCH_BYTES
    address = call.gpu.memory.allocate(
        call.gpu.allocation_name(call.function), pitch * max(height, 1) * max(depth, 1), alignment=512
    )
    layers = depth if flags & _LAYERED else 0
    handle = call.gpu.handle()
    call.gpu.arrays[handle] = Texture(
        address, width, height, 0 if layers else depth, layers, pitch, channels, bits, kind
    )
    call.int64(where, handle)


@answers("cudaFreeArray")
def free_array(call: Call, array: int) -> None:
    """``cudaFreeArray(cudaArray_t)``."""
    call.gpu.check()
    if array:
        call.gpu.memory.free(array_of(call, array).address)
        del call.gpu.arrays[array]


@answers("cudaGetChannelDesc")
def get_channel_desc(call: Call, where: int, array: int) -> None:
    """``cudaGetChannelDesc(cudaChannelFormatDesc*, cudaArray_const_t)``."""
    found = array_of(call, array)
    bits = [found.bits if each < found.channels else 0 for each in range(4)]
    call.int32(where, *bits, found.kind)


@answers("cudaMemcpy2DToArray")
def memcpy_2d_to_array(
    call: Call, array: int, x: int, y: int, source: int, pitch: int, width: int, height: int, kind: int
) -> None:
    """``cudaMemcpy2DToArray(dst, wOffset, hOffset, src, spitch, width, height, kind)``: x and width are in bytes."""
    _to_array(call, array, x, y, source, pitch, width, height, kind)(call)


@answers("cudaMemcpy2DToArrayAsync")
def memcpy_2d_to_array_async(
    call: Call, array: int, x: int, y: int, source: int, pitch: int, width: int, height: int, kind: int
) -> None:
    """``cudaMemcpy2DToArrayAsync``, whose arguments are those of ``cudaMemcpy2DToArray`` and a stream."""
    call.do(_to_array(call, array, x, y, source, pitch, width, height, kind), NodeType.COPY)


@answers("cudaMemcpy2DFromArray")
def memcpy_2d_from_array(
    call: Call, target: int, pitch: int, array: int, x: int, y: int, width: int, height: int, kind: int
) -> None:
    """``cudaMemcpy2DFromArray(dst, dpitch, src, wOffset, hOffset, width, height, kind)``."""
    _from_array(call, target, pitch, array, x, y, width, height, kind)(call)


@answers("cudaMemcpy2DFromArrayAsync")
def memcpy_2d_from_array_async(
    call: Call, target: int, pitch: int, array: int, x: int, y: int, width: int, height: int, kind: int
) -> None:
    """``cudaMemcpy2DFromArrayAsync``, whose arguments are those of ``cudaMemcpy2DFromArray`` and a stream."""
    call.do(_from_array(call, target, pitch, array, x, y, width, height, kind), NodeType.COPY)


@answers("cudaMemcpyToArray", "cudaMemcpyToArrayAsync")
def memcpy_to_array(call: Call, array: int, x: int, y: int, source: int, size: int, kind: int) -> None:
    """``cudaMemcpyToArray(dst, wOffset, hOffset, src, count, kind)``: row after row."""
    row = _row_bytes(array_of(call, array))
    if x or size % row:
        raise CallError(NOT_SUPPORTED, "copies of parts of rows by cudaMemcpyToArray are not emulated")
    call.do(_to_array(call, array, 0, y, source, row, row, size // row, kind), NodeType.COPY)


@answers("cudaMemcpyFromArray", "cudaMemcpyFromArrayAsync")
def memcpy_from_array(call: Call, target: int, array: int, x: int, y: int, size: int, kind: int) -> None:
    """``cudaMemcpyFromArray(dst, src, wOffset, hOffset, count, kind)``: row after row."""
    row = _row_bytes(array_of(call, array))
    if x or size % row:
        raise CallError(NOT_SUPPORTED, "copies of parts of rows by cudaMemcpyFromArray are not emulated")
    call.do(_from_array(call, target, row, array, 0, y, row, size // row, kind), NodeType.COPY)


def _row_bytes(array: Texture) -> int:
    return array.width * array.texel_bytes


def _rows_of(call: Call, array: int, x: int, y: int, width: int, height: int) -> tuple[int, int]:
    """Address and pitch of rows of an array."""
    found = array_of(call, array)
    if x + width > _row_bytes(found) or y + height > max(found.height, 1):
        raise CallError(
            INVALID_VALUE,
            f"{height} rows of {width} bytes at row {y}, byte {x} of an array of {max(found.height, 1)} rows of "
            f"{_row_bytes(found)} bytes",
        )
    return found.address + y * found.pitch + x, found.pitch


def _to_array(
    call: Call, array: int, x: int, y: int, source: int, pitch: int, width: int, height: int, kind: int
) -> Work:
    target, target_pitch = _rows_of(call, array, x, y, width, height)
    kind = kind_with_arrays(kind, from_array=False, onto_array=True)

    def copy_rows(now: Call) -> None:
        for row in range(height):
            copy(now, target + row * target_pitch, source + row * pitch, width, kind)

    return copy_rows


def _from_array(
    call: Call, target: int, pitch: int, array: int, x: int, y: int, width: int, height: int, kind: int
) -> Work:
    source, source_pitch = _rows_of(call, array, x, y, width, height)
    kind = kind_with_arrays(kind, from_array=True, onto_array=False)

    def copy_rows(now: Call) -> None:
        for row in range(height):
            copy(now, target + row * pitch, source + row * source_pitch, width, kind)

    return copy_rows


# --- texture and surface objects -------------------------------------------------------------------------------------


@answers("cudaCreateTextureObject")
def create_texture_object(call: Call, where: int, resource: int, description: int, view: int) -> None:
    """``cudaCreateTextureObject(object*, const cudaResourceDesc*, const cudaTextureDesc*, view)``."""
    if view:
        raise CallError(NOT_SUPPORTED, "views of resources (cudaResourceViewDesc) are not emulated")
    x, y, z, linear, as_float, srgb, *border, normalized, _ = call.memory.unpack(_TEXTURE, description)
    found = _resource(call, resource)
    if srgb:
        raise CallError(NOT_SUPPORTED, "textures of sRGB are not emulated")
    if as_float and found.bits == 32 and found.kind != 2:
        raise CallError(INVALID_VALUE, "integers of 32 bits cannot be read as normalized floats")
    if linear and not as_float and found.kind != 2:
        raise CallError(INVALID_VALUE, "linear filtering of integers needs cudaReadModeNormalizedFloat")
    # Without normalized coordinates, wrapping and mirroring are clamping.
    outside = [each if normalized or each == BORDER else 1 for each in (x, y, z)]
    made = replace(
        found, outside=(outside[0], outside[1], outside[2]), linear=bool(linear), normalized=bool(normalized),
        as_float=bool(as_float), border=(border[0], border[1], border[2], border[3]),
    )  # fmt: skip
    _place(call, where, made, "texture object")


@answers("cudaCreateSurfaceObject")
def create_surface_object(call: Call, where: int, resource: int) -> None:
    """``cudaCreateSurfaceObject(object*, const cudaResourceDesc*)``."""
    (kind,) = call.memory.unpack("<I", resource)
    if kind != _ARRAY:
        raise CallError(INVALID_VALUE, "surfaces are of arrays")
    _place(call, where, replace(_resource(call, resource), surface=True), "surface object")


@answers("cudaDestroyTextureObject", "cudaDestroySurfaceObject")
def destroy_object(call: Call, handle: int) -> None:
    """``cudaDestroyTextureObject(object)``."""
    if handle:
        call.gpu.memory.free(handle)


def _place(call: Call, where: int, made: Texture, name: str) -> None:
    handle = call.gpu.memory.place(call.gpu.allocation_name(name), made.encode(), writable=False)
    call.int64(where, handle)


def _resource(call: Call, where: int) -> Texture:
    """``cudaResourceDesc``: an array, memory, or rows of memory."""
    (kind,) = call.memory.unpack("<I", where)
    at = where + _RESOURCE_AT
    if kind == _ARRAY:
        (handle,) = call.memory.unpack("<Q", at)
        return array_of(call, handle)
    if kind not in (_LINEAR, _PITCHED):
        raise CallError(
            NOT_SUPPORTED, f"resources of type {kind} (cudaResourceType), such as mipmaps, are not emulated"
        )
    (address,) = call.memory.unpack("<Q", at)
    channels, bits, channel_kind = _channels(call, at + 8)
    width, height, pitch = call.memory.unpack("<3Q", at + 32)
    if kind == _LINEAR:
        size = channels * bits // 8
        return Texture(address, width // size, 0, 0, 0, width, channels, bits, channel_kind)
    return Texture(address, width, height, 0, 0, pitch, channels, bits, channel_kind)
