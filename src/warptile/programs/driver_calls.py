"""Functions of the CUDA driver that programs of the CUDA runtime call, and how they find them."""

from __future__ import annotations

from warptile.emulator.async_ops.tensor_boxes import encode
from warptile.errors import DTypeError, LayoutError, UnsupportedError
from warptile.launch.tensor_map import TensorMap
from warptile.programs.library_calls import INVALID_VALUE, NOT_SUPPORTED, Call, CallError, answers, unsigned

_SYMBOL_NOT_FOUND = 500
_TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", None, "tf32", None)
"""Of ``CUtensorMapDataType``; those that flush subnormal numbers are not emulated."""

_INTERLEAVES = ("none", "16B", "32B")
_SWIZZLES = ("none", "32B", "64B", "128B")
_PROMOTIONS = ("none", "64B", "128B", "256B")
_FILLS = ("zero", "nan")


@answers("cuTensorMapEncodeTiled")
def tensor_map_encode_tiled(
    call: Call, where: int, dtype: int, rank: int, address: int, dims: int, strides: int, box: int,
    element_strides: int, interleave: int, swizzle: int, promotion: int, fill: int,
) -> None:  # fmt: skip
    """``cuTensorMapEncodeTiled``, whose map only the emulator can read."""
    rank = unsigned(rank)
    if not 1 <= rank <= 5:
        raise CallError(INVALID_VALUE, f"tensorRank {rank}")
    try:
        kind = _TYPES[unsigned(dtype)]
        if kind is None:
            raise CallError(INVALID_VALUE, f"tensorDataType {unsigned(dtype)} flushes subnormal numbers: not emulated")
        tensor = TensorMap(
            "the tensor", kind, call.memory.unpack(f"<{rank}Q", dims),
            call.memory.unpack(f"<{rank - 1}Q", strides) if rank > 1 else (), call.memory.unpack(f"<{rank}I", box),
            call.memory.unpack(f"<{rank}I", element_strides), _SWIZZLES[unsigned(swizzle)],
            _INTERLEAVES[unsigned(interleave)], _FILLS[unsigned(fill)], l2_promotion=_PROMOTIONS[unsigned(promotion)],
        )  # fmt: skip
    except (DTypeError, LayoutError, UnsupportedError, IndexError) as error:
        raise CallError(INVALID_VALUE, str(error)) from None
    if address % 16:
        raise CallError(INVALID_VALUE, f"globalAddress {address:#x} is not a multiple of 16")
    call.memory.write(where, encode(tensor, address))


@answers("cudaGetDriverEntryPoint")
def get_driver_entry_point(call: Call, name: int, where: int, flags: int, result: int) -> None:
    """``cudaGetDriverEntryPoint(const char*, void**, unsigned long long, cudaDriverEntryPointQueryResult*)``."""
    _find(call, name, where, result)


@answers("cudaGetDriverEntryPointByVersion")
def get_driver_entry_point_by_version(call: Call, name: int, where: int, version: int, flags: int, result: int) -> None:
    """``cudaGetDriverEntryPointByVersion(name, function, version, flags, result)``."""
    _find(call, name, where, result)


@answers("cuGetExportTable", "cudaGetExportTable")
def get_export_table(call: Call, where: int) -> None:
    """``cuGetExportTable(const void**, const CUuuid*)``: undocumented functions, for the static CUDA runtime."""
    call.int64(where, 0)
    raise CallError(
        NOT_SUPPORTED,
        "undocumented functions of the driver are not emulated. Libraries that are linked with the static CUDA "
        "runtime, as CuPy and Warp are, do not work without them; others do",
    )


@answers("cuGetProcAddress_v2")
def get_proc_address(call: Call, name: int, where: int, version: int, flags: int, result: int) -> None:
    """``cuGetProcAddress(name, function, version, flags, result)``. Programs look up more than they call, so that what
    is not there is not told."""
    _find(call, name, where, result, tell=False)


@answers("cuGetProcAddress")
def get_proc_address_11(call: Call, name: int, where: int, version: int, flags: int) -> None:
    """``cuGetProcAddress`` of CUDA 11, which has no result."""
    _find(call, name, where, 0, tell=False)


def _find(call: Call, name: int, where: int, result: int, *, tell: bool = True) -> None:
    wanted = call.memory.string(name)
    found = call.addresses(f"{wanted}_v2") or call.addresses(wanted)
    if result:
        call.int32(result, 0 if found else 1)
    call.int64(where, found or 0)
    if found is None:
        raise CallError(_SYMBOL_NOT_FOUND, f"{wanted} is not emulated" if tell else "")
