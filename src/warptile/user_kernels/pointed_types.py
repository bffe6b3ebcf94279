"""Which elements an array may have that a kernel gets as a pointer, by what the kernel's C++ name says."""

from __future__ import annotations

import re
from functools import cache

CPP_SCALARS = {
    "bool": "bool", "char": "s8", "signed char": "s8", "unsigned char": "u8", "short": "s16", "unsigned short": "u16",
    "int": "s32", "unsigned int": "u32", "long": "s64", "unsigned long": "u64", "long long": "s64",
    "unsigned long long": "u64", "float": "f32", "double": "f64", "__half": "f16", "__nv_bfloat16": "bf16",
    "c10::Half": "f16", "c10::BFloat16": "bf16",
}  # fmt: skip
"""A type in C++ -> that of a `warptile.launch.params.Scalar`."""

_BYTES = ("uint8", "int8")
"""Elements of memory without a type, which every pointer takes."""

_E4M3, _E5M2 = "float8_e4m3fn", "float8_e5m2"
_HALVES = ("float16", "bfloat16")

_TAKEN: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "s8": ("int8", "uint8", "bool", _E4M3, _E5M2), "u8": ("uint8", "int8", "bool", _E4M3, _E5M2),
    "s16": ("int16", "uint16", *_HALVES), "u16": ("uint16", "int16", *_HALVES),
    "s32": ("int32", "uint32"), "u32": ("uint32", "int32"),
    "s64": ("int64", "uint64"), "u64": ("uint64", "int64"),
    "f32": ("float32", "complex64"), "f64": ("float64", "complex128"),
    "f16": ("float16", "uint16", "int16"), "bf16": ("bfloat16", "uint16", "int16"),
    "e4m3": (_E4M3,), "e5m2": (_E5M2,),
}  # fmt: skip
"""Elements, besides bytes, of a pointer to a scalar, the usual one first. Kernels also take 16-bit floats and complex
numbers as plain words."""

_PACKED = {
    "__half2": "f16", "__nv_bfloat162": "bf16", "__nv_fp8_e4m3": "e4m3", "__nv_fp8x2_e4m3": "e4m3",
    "__nv_fp8x4_e4m3": "e4m3", "__nv_fp8_e5m2": "e5m2", "__nv_fp8x2_e5m2": "e5m2", "__nv_fp8x4_e5m2": "e5m2",
}  # fmt: skip
"""CUDA's other types of small floats -> the element."""

_VECTOR = re.compile(r"(?P<unsigned>u?)(?P<element>char|short|float|double)[1-4](?:_16a|_32a)?")
"""CUDA's vector types. Those of int and long are left aside: kernels move 8 or 16 bytes of anything as ``int4``."""

_KNOWN = frozenset(name for taken in _TAKEN.values() for name in taken)
"""Elements of which it is known what they are; others, such as records, go with every pointer."""

_QUALIFIER = re.compile(r"\b(?:const|volatile|__restrict(?:__)?)\b")
_ANYTHING = frozenset(("void", "char", "std::byte"))
"""What points to memory of any type."""


@cache
def elements_taken(cuda_type: str) -> tuple[str, ...] | None:
    """The elements that a pointer takes besides bytes, the usual one first.

    Args:
        cuda_type: of the pointer, such as ``"float const*"`` or ``"float (*) [16]"``.

    Returns:
        Names of NumPy and ml_dtypes; None where any array may be meant.
    """
    pointee = _pointee(cuda_type)
    if pointee is None or pointee in _ANYTHING:
        return None
    if pointee.endswith("*"):
        return "uint64", "int64"
    kind = CPP_SCALARS.get(pointee) or _PACKED.get(pointee)
    if kind is None and (vector := _VECTOR.fullmatch(pointee)):
        kind = CPP_SCALARS[f"{'unsigned ' if vector['unsigned'] else ''}{vector['element']}"]
    return None if kind is None else _TAKEN[kind]


def _pointee(cuda_type: str) -> str | None:
    """What a pointer or reference points to; the element of an array."""
    found = re.fullmatch(r"(?P<to>[^()]*?)\s*(?:[*&]|\([*&]\)\s*(?:\[\d*\]\s*)+)", _QUALIFIER.sub("", cuda_type))
    return None if found is None else re.sub(r"\s*\*", "*", " ".join(found["to"].split()))


def taken_instead(cuda_type: str | None, element: str) -> tuple[str, ...]:
    """What a pointer takes instead of an array of some elements; nothing where it may take that array.

    Args:
        cuda_type: of the pointer; None where it is not known.
        element: name of the elements, as NumPy and ml_dtypes say it.
    """
    if cuda_type is None or element not in _KNOWN or element in _BYTES:
        return ()
    taken = elements_taken(cuda_type)
    return () if taken is None or element in taken else taken
