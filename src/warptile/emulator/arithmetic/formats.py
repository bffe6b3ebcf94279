"""Floating-point formats that NumPy lacks: encodings, limits, conversion to and from float32 and float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from warptile.emulator.arithmetic.fused import compiled
from warptile.emulator.arithmetic.rounding import to_grid, to_odd_f32
from warptile.emulator.lanes import Array

NAN_F32 = np.uint32(0x7FFFFFFF).view(np.float32)
"""The NaN that single-precision instructions give."""

TINY_F32 = np.float32(2.0**-126)
"""The smallest normal float32."""


def canonical_f32(value: Array) -> Array:
    """float32 values with every NaN replaced by the one that the hardware gives."""
    return np.where(np.isnan(value), NAN_F32, value)


def quiet_f64(value: Array) -> Array:
    """float64 NaN made quiet, sign and payload kept: what the hardware passes on."""
    quiet: Array = (value.view(np.uint64) | np.uint64(1 << 51)).view(np.float64)
    return quiet


def flush_subnormals(value: Array, tiny: Any = TINY_F32) -> Array:
    """What .ftz does: magnitudes below ``tiny`` become a zero of the same sign."""
    return np.where(np.abs(value) < tiny, np.copysign(value.dtype.type(0), value), value)


def saturate(value: Array) -> Array:
    """What .sat does: into [0, 1], a NaN to +0."""
    one = value.dtype.type(1)
    answer: Array = np.where(value > 0, np.minimum(value, one), value.dtype.type(0))
    return answer


def rectify(value: Array) -> Array:
    """What .relu does: nothing below +0; a NaN stays."""
    return np.where(value <= 0, value.dtype.type(0), value)


@dataclass(frozen=True)
class Format:
    """A binary float format: sign, exponent, fraction.

    Attributes:
        name: as PTX calls it.
        bits: of storage.
        precision: significant bits, the leading one included.
        minimum_exponent: of the smallest normal number.
        maximum: largest finite value.
        infinity: whether it has infinities (else NaN, or nothing, stands for them).
        nan: bits of its NaN, or None where it has none.
    """

    name: str
    bits: int
    precision: int
    minimum_exponent: int
    maximum: float
    infinity: bool
    nan: int | None

    def encode(self, value: Array, direction: str, *, saturate_finite: bool = False) -> Array:
        """Round float64 values (exact, or rounded to odd) into this format; their bits as uint32.

        Args:
            value: float64.
            direction: as `to_grid` takes it.
            saturate_finite: what .satfinite does: overflow and infinity become the largest finite value.
        """
        not_a_number = np.isnan(value)
        grid = to_grid(value, self.precision, self.minimum_exponent, direction)
        over = np.abs(grid) > self.maximum
        if saturate_finite or not self.infinity:
            grid = np.where(over, np.copysign(self.maximum, value), grid)
        elif direction in ("rz", "rm", "rp"):
            stays = {"rz": over, "rm": over & (value > 0), "rp": over & (value < 0)}[direction] & np.isfinite(value)
            grid = np.where(stays, np.copysign(self.maximum, value), grid)
            over &= ~stays
        magnitude = np.abs(np.where(not_a_number | np.isinf(grid), 0.0, grid))
        fraction, exponent = np.frexp(magnitude)
        scale = self.precision - 1
        normal = magnitude >= 2.0**self.minimum_exponent
        biased = np.where(normal, exponent - self.minimum_exponent, 0)
        part = np.where(normal, (fraction * 2 - 1) * 2.0**scale, np.ldexp(magnitude, scale - self.minimum_exponent))
        code = (biased.astype(np.int64) << scale) + part.astype(np.int64)
        if self.infinity and not saturate_finite:
            code = np.where(over | np.isinf(grid), self._infinity_code, code)
        code = code | (np.signbit(grid).astype(np.int64) << (self.bits - 1))
        missing = (1 << (self.bits - 1)) - 1 if self.nan is None else self.nan  # else the largest number
        return np.where(not_a_number, missing, code).astype(np.uint32)

    def decode(self, code: Array) -> Array:
        """float32 values of codes, for formats of at most 8 bits."""
        return self._values[code]

    @property
    def _exponent_bits(self) -> int:
        return self.bits - self.precision

    @property
    def _infinity_code(self) -> int:
        return ((1 << self._exponent_bits) - 1) << (self.precision - 1)

    @cached_property
    def _values(self) -> Array:
        found = []
        for code in range(1 << self.bits):
            sign = -1.0 if code >> (self.bits - 1) else 1.0
            biased = code >> (self.precision - 1) & ((1 << self._exponent_bits) - 1)
            fraction = (code & ((1 << (self.precision - 1)) - 1)) / 2.0 ** (self.precision - 1)
            value = (1 + fraction) * 2.0 ** (biased - 1) if biased else fraction
            value *= 2.0**self.minimum_exponent
            if value > self.maximum:
                value = float("inf") if self.infinity and fraction == 0 else float("nan")
            found.append(sign * value)
        values = np.array(found, dtype=np.float32)
        return np.where(np.isnan(values), NAN_F32, values)


F16 = Format("f16", 16, 11, -14, 65504.0, True, 0x7FFF)
BF16 = Format("bf16", 16, 8, -126, float.fromhex("0x1.fep127"), True, 0x7FFF)
TF32 = Format("tf32", 19, 11, -126, float.fromhex("0x1.ffcp127"), True, 0x3FFFF)
NARROW = {
    "e4m3": Format("e4m3", 8, 4, -6, 448.0, False, 0x7F),
    "e5m2": Format("e5m2", 8, 3, -14, 57344.0, True, 0x7F),
    "e2m3": Format("e2m3", 6, 4, 0, 7.5, False, None),
    "e3m2": Format("e3m2", 6, 3, -2, 28.0, False, None),
    "e2m1": Format("e2m1", 4, 2, 0, 6.0, False, None),
}
"""Formats of 8 bits and fewer, which only `cvt` and the tensor cores know."""


@dataclass(frozen=True)
class SmallFloat:
    """f16 or bf16, alone or in pairs: how a register becomes float32 values, and how results go back.

    Attributes:
        name: PTX's name of the type.
        format: of each value.
        pair: the register holds two; values are then arrays (lanes, 2), the low half first.
        widen: register bits -> float32 values, exact.
        narrow: float32 values -> register bits, to the nearest; NaN to the canonical one.
        narrow_exactly: the same from float64 values that are exact or rounded to odd.
    """

    name: str
    format: Format
    pair: bool
    widen: Callable[[Array], Array]
    narrow: Callable[[Array], Array]
    narrow_exactly: Callable[[Array], Array]

    @property
    def storage(self) -> Any:
        """NumPy type of the register."""
        return np.uint32 if self.pair else np.uint16

    @property
    def tiny(self) -> np.float32:
        """The smallest normal number."""
        return np.float32(2.0**self.format.minimum_exponent)

    @property
    def one(self) -> int:
        """The bits of 1."""
        return 0x3C00 if self.format is F16 else 0x3F80


def widen_f16(bits: Array) -> Array:
    """float32 values of f16 bits."""
    return compiled("widen", "f16")(bits)


def widen_bf16(bits: Array) -> Array:
    """float32 values of bf16 bits."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow_f16(value: Array) -> Array:
    """f16 bits of float32 values, to the nearest."""
    return compiled("narrow", "f16")(value)


def _narrow_f16_exactly(value: Array) -> Array:
    return narrow_f16(np.where(np.isinf(value), value.astype(np.float32), to_odd_f32(value)))


def narrow_bf16(value: Array) -> Array:
    """bf16 bits of float32 values, to the nearest."""
    return compiled("narrow", "bf16")(value)


def _narrow_bf16_exactly(value: Array) -> Array:
    return narrow_bf16(np.where(np.isinf(value), value.astype(np.float32), to_odd_f32(value)))


def _paired(widen: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda bits: widen(np.ascontiguousarray(bits).view(np.uint16).reshape(-1, 2))


def _packed(narrow: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda value: np.ascontiguousarray(narrow(value)).view(np.uint32).reshape(-1)


SMALL_FLOATS = {
    "f16": SmallFloat("f16", F16, False, widen_f16, narrow_f16, _narrow_f16_exactly),
    "bf16": SmallFloat("bf16", BF16, False, widen_bf16, narrow_bf16, _narrow_bf16_exactly),
    "f16x2": SmallFloat("f16x2", F16, True, _paired(widen_f16), _packed(narrow_f16), _packed(_narrow_f16_exactly)),
    "bf16x2": SmallFloat(
        "bf16x2", BF16, True, _paired(widen_bf16), _packed(narrow_bf16), _packed(_narrow_bf16_exactly)
    ),
}
"""The 16-bit floats of PTX by type name."""
