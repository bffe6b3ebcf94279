"""Calls about memory of three dimensions: slices of rows at a pitch, and arrays (``cudaArray_t``), which are that too.

Structs of more than 16 bytes that C passes by value lie on the stack, in their order.
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.programs.arrays import array_of, kind_with_arrays
from warptile.programs.graphs import NodeType
from warptile.programs.library_calls import Call, Work, answers
from warptile.programs.memory_calls import copy, malloc_pitch, memset

_COPY = "<Q3Q4QQ3Q4Q3QI"
"""``cudaMemcpy3DParms`` (``driver_types.h``): array, position and pitched pointer of the source and of the destination,
extent, kind."""


@dataclass(frozen=True)
class _Pitched:
    """A ``cudaPitchedPtr``: rows ``pitch`` bytes apart, of which ``rows`` are a slice."""

    address: int
    pitch: int
    rows: int

    def row(self, z: int, y: int) -> int:
        """Address of a row."""
        return self.address + (z * self.rows + y) * self.pitch


@answers("cudaMalloc3D")
def malloc_3d(call: Call, where: int) -> None:
    """``cudaMalloc3D(cudaPitchedPtr*, cudaExtent)``."""
    width, height, depth = call.memory.unpack("<3Q", call.stack)
    malloc_pitch(call, where, where + 8, width, height * depth)
    call.int64(where + 16, width, height)


@answers("cudaMemset3D")
def memset_3d(call: Call, value: int) -> None:
    """``cudaMemset3D(cudaPitchedPtr, int, cudaExtent)``."""
    _filling(call, value)(call)


@answers("cudaMemset3DAsync")
def memset_3d_async(call: Call, value: int) -> None:
    """``cudaMemset3DAsync(cudaPitchedPtr, int, cudaExtent, cudaStream_t)``."""
    call.do(_filling(call, value), NodeType.MEMSET)


@answers("cudaMemcpy3D")
def memcpy_3d(call: Call, parameters: int) -> None:
    """``cudaMemcpy3D(const cudaMemcpy3DParms*)``."""
    copying_volume(call, parameters)(call)


@answers("cudaMemcpy3DAsync")
def memcpy_3d_async(call: Call, parameters: int) -> None:
    """``cudaMemcpy3DAsync(const cudaMemcpy3DParms*, cudaStream_t)``."""
    call.do(copying_volume(call, parameters))


def _filling(call: Call, value: int) -> Work:
    """``cudaMemset3D`` of what the stack says now."""
    address, pitch, _, rows, width, height, depth = call.memory.unpack("<7Q", call.stack)
    memory = _Pitched(address, pitch, rows)

    def fill(now: Call) -> None:
        for z in range(depth if width else 0):
            for y in range(height):
                memset(now, memory.row(z, y), value, width)

    return fill


def copying_volume(call: Call, parameters: int) -> Work:
    """``cudaMemcpy3D`` of what its parameters say now."""
    found = call.memory.unpack(_COPY, parameters)
    source, target = _placed(call, found[0], found[1:8]), _placed(call, found[8], found[9:16])
    width, height, depth, kind = found[16:]
    arrays = [call.gpu.arrays[each] for each in (found[0], found[8]) if each]
    if arrays:
        width *= arrays[0].texel_bytes
    kind = kind_with_arrays(kind, from_array=bool(found[0]), onto_array=bool(found[8]))

    def copy_rows(now: Call) -> None:
        for z in range(depth if width else 0):
            for y in range(height):
                copy(now, target.row(z, y), source.row(z, y), width, kind)

    return copy_rows


def _placed(call: Call, array: int, words: tuple[int, ...]) -> _Pitched:
    """An array, or a ``cudaPitchedPtr``, behind a ``cudaPos``, from that position on; x is in bytes, or in elements of
    the array."""
    x, y, z, address, pitch, _, rows = words
    if array:
        found = array_of(call, array)
        x, address, pitch, rows = x * found.texel_bytes, found.address, found.pitch, max(found.height, 1)
    first = _Pitched(address, pitch, rows)
    return _Pitched(first.row(z, y) + x, pitch, rows)
