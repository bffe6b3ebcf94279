"""Element types: their names in NumPy, torch, CUDA C++ and PTX, and the accumulators each may use."""

from __future__ import annotations

from dataclasses import dataclass

from warptile.errors import DTypeError


@dataclass(frozen=True)
class DType:
    """One element type of a matrix.

    Attributes:
        name: warptile's name, as given to ``--dtype``.
        bits: storage bits of one element (``tfloat32`` is stored as a float32).
        kind: ``"float"``, ``"int"`` (signed), ``"uint"`` or ``"bit"``.
        cuda: the CUDA C++ storage type.
        ptx: the type suffix PTX uses for it in ``wmma`` and ``mma`` instructions.
        numpy: name of the NumPy (or ml_dtypes) storage type.
        torch: name of the torch type, or None where torch has none.
        accumulators: names of the legal accumulator types, the default first; none for a type that only accumulates.
        mantissa_bits: explicit fraction bits (0 for integers); unit roundoff is 2**-(mantissa_bits + 1).
        min_exponent: exponent of the smallest normal number (0 for integers).
        largest: largest finite number, or largest integer.
    """

    name: str
    bits: int
    kind: str
    cuda: str
    ptx: str
    numpy: str
    torch: str | None
    accumulators: tuple[str, ...]
    mantissa_bits: int = 0
    min_exponent: int = 0
    largest: float = 0.0

    def __hash__(self) -> int:
        """Of the name, which no two share: problems are looked up often."""
        return hash(self.name)

    @property
    def bytes(self) -> float:
        """Storage bytes of one element (fractional for sub-byte types)."""
        return self.bits / 8

    @property
    def is_float8(self) -> bool:
        """Whether it is a float of eight bits."""
        return self.kind == "float" and self.bits == 8

    @property
    def unit_roundoff(self) -> float:
        """Half the gap between 1 and the next number: u of the standard error bounds; 0 for integers."""
        return 0.0 if self.kind != "float" else 2.0 ** -(self.mantissa_bits + 1)


def _top(mantissa_bits: int, exponent: int) -> float:
    """The largest number with an exponent: all fraction bits set."""
    return (2 - 2.0**-mantissa_bits) * 2.0**exponent


_F32 = ("float32",)
_F32_F16 = ("float32", "float16")
_F8 = ("float32", "float16", "float32_fast")
_S32 = ("int32", "int32_saturating")
_ALL = (
    DType("float16", 16, "float", "__half", "f16", "float16", "float16", _F32_F16, 10, -14, _top(10, 15)),
    DType("bfloat16", 16, "float", "__nv_bfloat16", "bf16", "bfloat16", "bfloat16", _F32, 7, -126, _top(7, 127)),
    DType("float32", 32, "float", "float", "f32", "float32", "float32", _F32, 23, -126, _top(23, 127)),
    DType("tfloat32", 32, "float", "float", "tf32", "float32", "float32", _F32, 10, -126, _top(10, 127)),
    DType("float64", 64, "float", "double", "f64", "float64", "float64", ("float64",), 52, -1022, _top(52, 1023)),
    # e4m3 has no infinities: the all-ones pattern alone is NaN, so its largest number has one fraction bit fewer.
    DType("float8_e4m3", 8, "float", "warptile::float8_e4m3", "e4m3", "float8_e4m3fn", "float8_e4m3fn", _F8, 3, -6,
          448.0),
    DType("float8_e5m2", 8, "float", "warptile::float8_e5m2", "e5m2", "float8_e5m2", "float8_e5m2", _F8, 2, -14,
          _top(2, 15)),
    DType("int8", 8, "int", "signed char", "s8", "int8", "int8", _S32, largest=127),
    DType("uint8", 8, "uint", "unsigned char", "u8", "uint8", "uint8", _S32, largest=255),
    DType("int4", 4, "int", "warptile::int4_packed", "s4", "int4", None, _S32, largest=7),
    DType("uint4", 4, "uint", "warptile::uint4_packed", "u4", "uint4", None, _S32, largest=15),
    DType("bit1", 1, "bit", "warptile::bit_packed", "b1", "uint8", None, ("int32", "int32_xor"), largest=1),
    DType("int32", 32, "int", "int", "s32", "int32", "int32", ("int32",), largest=2**31 - 1),
    # Accumulators alone. Of 8-bit floats: as Hopper's tensor cores accumulate, truncated to 13 bits of fraction.
    DType("float32_fast", 32, "float", "warptile::fast_float", "f32", "float32", "float32", (), 12, -126,
          _top(13, 127)),
    # Stored as int32: accumulators that saturate at each instruction; ones counted of XOR instead of AND.
    DType("int32_saturating", 32, "int", "warptile::saturating_int", "s32", "int32", "int32", (), largest=2**31 - 1),
    DType("int32_xor", 32, "int", "warptile::xor_int", "s32", "int32", "int32", (), largest=2**31 - 1),
)  # fmt: skip

DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in _ALL}

_ALIASES = {
    "f16": "float16", "half": "float16", "fp16": "float16", "bf16": "bfloat16", "f32": "float32",
    "fp32": "float32", "tf32": "tfloat32", "f64": "float64", "double": "float64", "s8": "int8", "u8": "uint8",
    "s4": "int4", "u4": "uint4", "b1": "bit1", "s32": "int32", "e4m3": "float8_e4m3", "e5m2": "float8_e5m2",
    "float8_e4m3fn": "float8_e4m3",
}  # fmt: skip


def dtype(name: str | DType) -> DType:
    """The element type called ``name`` (its own name or a usual short one such as ``"bf16"``).

    Raises:
        DTypeError: no such type; the message lists the known ones.
    """
    if isinstance(name, DType):
        return name
    found = DTYPES.get(_ALIASES.get(name, name))
    if found is None:
        known = ", ".join(DTYPES)
        raise DTypeError(
            f"dtype: got {name!r}, which warptile does not know; it takes one of {known}, such as dtype='float16'"
        )
    return found
