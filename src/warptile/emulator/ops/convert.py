"""``cvt`` between all types, in every rounding (PTX ISA, "cvt" and "cvt.pack").

A float that becomes an integer is clamped to its range. A NaN becomes 0, except that from .f64, or to a 64-bit integer,
it becomes the value with only the top bit set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from warptile.emulator.arithmetic.formats import (
    NARROW,
    SMALL_FLOATS,
    TF32,
    Format,
    canonical_f32,
    flush_subnormals,
    rectify,
    saturate,
)
from warptile.emulator.arithmetic.rounding import rounded, to_integral
from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import Array
from warptile.emulator.ops.typed import INTEGERS, elementwise
from warptile.ptx.instruction import Instruction

_FLOAT_DIRECTIONS = ("rn", "rz", "rm", "rp", "rna")
_INTEGER_DIRECTIONS = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
_SCALAR_FLOATS = ("f16", "bf16", "f32", "f64", "tf32")
_PRECISION = {"f16": 11, "bf16": 8, "tf32": 11, "f32": 24, "f64": 53}
_LOW = np.uint64(0xFFFFFFFF)
_TWO_32 = np.float64(2**32)

PtxFunction = Callable[[Array], Array]


@dataclass(frozen=True)
class _Options:
    """The modifiers of one `cvt`, types apart."""

    direction: str | None
    integral: str | None
    ftz: bool
    sat: bool
    relu: bool
    finite: bool


@builder("cvt")
def convert(instruction: Instruction, assembler: Assembler) -> Operation:
    """Every form of ``cvt``; pairs of `fp4`, `fp6`, `fp8` and scale factors included, stochastic rounding not."""
    modifiers = Modifiers(instruction)
    if modifiers.flag("pack"):
        return _pack(instruction, assembler, modifiers)
    source, target = modifiers.last(), modifiers.last()
    integral = modifiers.take(*_INTEGER_DIRECTIONS)
    options = _Options(
        direction=modifiers.take(*_FLOAT_DIRECTIONS),
        integral=_INTEGER_DIRECTIONS[integral] if integral else None,
        ftz=modifiers.flag("ftz"),
        sat=modifiers.flag("sat"),
        relu=modifiers.flag("relu"),
        finite=modifiers.flag("satfinite"),
    )
    modifiers.done()
    if source in INTEGERS and target in INTEGERS:
        if options != _Options(None, None, False, options.sat, False, False):
            raise unknown(instruction, "between integers, only .sat has a meaning")
        function = integer_to_integer(source, target, saturating=options.sat)
        return elementwise(instruction, assembler, function, INTEGERS[target], INTEGERS[source])
    if source in _SCALAR_FLOATS and target in INTEGERS:
        return _float_to_integer(instruction, assembler, source, target, options)
    if source in INTEGERS and target in ("f32", "f64") and options == _Options("rn", None, False, False, False, False):
        wanted = np.float32 if target == "f32" else np.float64
        return elementwise(instruction, assembler, lambda a: a.astype(wanted), wanted, INTEGERS[source])
    if target in _SCALAR_FLOATS and (source in INTEGERS or source in _SCALAR_FLOATS):
        read, storage = _reader(instruction, source, target, options)
        write, result = _writer(instruction, source, target, options)
        if source == "f64" and target in ("f32", "f16", "bf16") and not options.sat:
            write = _keeping_nan(write, target, result)
        return elementwise(instruction, assembler, lambda a: write(read(a)), result, storage, quiet=True)
    return _pairs(instruction, assembler, source, target, options)


# -- integers ----------------------------------------------------------------------------------------------------------


def integer_to_integer(source: str, target: str, *, saturating: bool) -> PtxFunction:
    """Sign- or zero-extend, cut off, or (``saturating``) clamp."""
    wanted = INTEGERS[target]
    if not saturating:
        return lambda a: a.astype(wanted)
    limits, own = np.iinfo(wanted), np.iinfo(INTEGERS[source])
    low, high = max(limits.min, own.min), min(limits.max, own.max)
    return lambda a: np.clip(a, low, high).astype(wanted)


def float_to_integer(target: str, direction: str, *, nan_is_top: bool) -> PtxFunction:
    """Round float32 or float64 values and clamp them to the range of ``target``."""
    kind = INTEGERS[target]
    limits = np.iinfo(kind)
    bits = 8 * kind.itemsize
    nan_value = kind.type(limits.min if kind.kind == "i" else 1 << (bits - 1)) if nan_is_top else kind.type(0)
    if bits < 64:

        def narrow(a: Array) -> Array:
            whole = to_integral(a.astype(np.float64), direction)
            clamped = np.minimum(np.maximum(whole, limits.min), limits.max)
            missing = np.isnan(whole)
            if missing.any():
                return np.where(missing, nan_value, np.where(missing, 0.0, clamped).astype(kind))
            return clamped.astype(kind)

        return narrow
    top = 2.0 ** (bits - 1 if kind.kind == "i" else bits)

    def wide(a: Array) -> Array:
        whole = to_integral(a.astype(np.float64), direction)
        over, under = whole >= top, whole < float(limits.min)
        inside = np.where(over | under | np.isnan(whole), 0.0, whole).astype(kind)
        clamped = np.where(over, kind.type(limits.max), np.where(under, kind.type(limits.min), inside))
        return np.where(np.isnan(whole), nan_value, clamped)

    return wide


def _float_to_integer(
    instruction: Instruction, assembler: Assembler, source: str, target: str, options: _Options
) -> Operation:
    if options.integral is None or options.direction or options.relu or options.finite or source == "tf32":
        raise unknown(instruction, "from a float to an integer takes .rni, .rzi, .rmi or .rpi, .ftz and .sat")
    nan_is_top = source == "f64" or target in ("s64", "u64", "b64")
    to_int = float_to_integer(target, options.integral, nan_is_top=nan_is_top)
    read, storage = _float_reader(source)
    flush = options.ftz and source == "f32"

    def function(a: Array) -> Array:
        value = read(a)
        return to_int(flush_subnormals(value) if flush else value)

    return elementwise(instruction, assembler, function, INTEGERS[target], storage, quiet=True)


# -- to floats ---------------------------------------------------------------------------------------------------------


def _keeping_nan(write: PtxFunction, target: str, result: Any) -> PtxFunction:
    """``write`` of float64 values, but for NaN: they become quiet and keep their sign and upper bits."""
    kind = np.dtype(result)
    word = np.dtype(f"u{kind.itemsize}")
    exponent_bits = 5 if target == "f16" else 8
    fraction_bits = 8 * kind.itemsize - 1 - exponent_bits
    top = ((2 << exponent_bits) - 1) << (fraction_bits - 1)  # infinity's exponent and the quiet bit

    def kept(a: Array) -> Array:
        bits = a.view(np.uint64)
        sign = bits >> np.uint64(63) << np.uint64(8 * kind.itemsize - 1)
        payload = (bits & np.uint64((1 << 52) - 1)) >> np.uint64(52 - fraction_bits)
        nan = (sign | payload | np.uint64(top)).astype(word).view(kind)
        return np.where(np.isnan(a), nan, write(a))

    return kept


def _float_reader(name: str) -> tuple[PtxFunction, Any]:
    """Exact float32 (float64 for .f64) values of a register, and the type to read it as."""
    small = SMALL_FLOATS.get(name)
    if small is not None:
        return small.widen, small.storage
    return (lambda a: a), np.float64 if name == "f64" else np.float32


def _reader(instruction: Instruction, source: str, target: str, options: _Options) -> tuple[PtxFunction, Any]:
    """What the target is rounded from: float values that are exact, or rounded to odd in float64."""
    if source in INTEGERS:
        kind = INTEGERS[source]
        if options.direction is None or options.integral or options.ftz or options.relu or options.finite:
            raise unknown(instruction, "from an integer to a float takes .rn, .rz, .rm or .rp, and .sat")
        if target == "f64":
            return rounded(_exact_f64, options.direction), kind
        if kind.itemsize < 8:
            return (lambda a: a.astype(np.float64)), kind
        return _odd_f64, kind
    read, storage = _float_reader(source)
    if source == "tf32":
        raise unknown(instruction, "a .tf32 is read as .f32")
    if not (options.ftz and source == "f32") or target == "f16":  # to f16, subnormals count all the same
        return read, storage
    if target == "f64":
        return (lambda a: flush_subnormals(canonical_f32(read(a)))), storage
    return (lambda a: flush_subnormals(read(a))), storage


def _exact_f64(a: Array) -> Array:
    """float64 of integers, by one addition of two exact parts: rounded as the processor is set."""
    if a.dtype.itemsize < 8:
        return a.astype(np.float64)
    low = (a.view(np.uint64) & _LOW).astype(np.float64)
    answer: Array = (a >> a.dtype.type(32)).astype(np.float64) * _TWO_32 + low
    return answer


def _odd_f64(a: Array) -> Array:
    """float64 of 64-bit integers, rounded to odd."""
    negative = a < 0
    magnitude = (np.where(negative, -a, a) if a.dtype.kind == "i" else a).view(np.uint64)
    large = magnitude >= np.uint64(1 << 53)
    sticky = (magnitude & np.uint64(0x7FF)) != 0
    short = (magnitude >> np.uint64(11)) | sticky
    value = np.where(large, short.astype(np.float64) * 2048.0, np.where(large, 0, magnitude).astype(np.float64))
    return np.where(negative, -value, value)


def _writer(instruction: Instruction, source: str, target: str, options: _Options) -> tuple[PtxFunction, Any]:
    """From exact values to register bits, with every modifier applied, and the type to write them as."""
    direction = options.direction or "rn"
    from_integer = source in INTEGERS
    loses = from_integer or _PRECISION[source] > _PRECISION[target] or (source, target) == ("f16", "bf16")
    if target == "tf32" and source != "f32":
        raise unknown(instruction, "a .tf32 is made from .f32")
    if loses and options.direction is None:
        raise unknown(instruction, f"from .{source} to .{target} needs a rounding such as .rn")
    if options.integral and (from_integer or source != target):
        raise unknown(instruction, "rounding to an integral float keeps the type")
    if options.finite and target in ("f32", "f64"):
        raise unknown(instruction, ".satfinite is for the narrow formats")
    steps: list[PtxFunction] = []
    if options.integral:
        integral = options.integral
        steps.append(lambda a: to_integral(a, integral))
    if options.sat:
        steps.append(saturate)
    if options.relu:
        steps.append(rectify)
    if target == "f64":
        storage: Any = np.float64
        steps.append(lambda a: a.astype(np.float64))
    elif target == "f32":
        storage = np.float32
        steps.append(rounded(lambda a: a.astype(np.float32), direction))
        if source != "bf16":  # whose bits are moved, and no more
            steps.append(canonical_f32)
        if options.ftz:
            steps.append(flush_subnormals)
    elif target == "tf32":
        storage = np.uint32
        steps.append(lambda a: _tf32(a, direction, options.finite))
    else:
        small = SMALL_FLOATS[target]
        storage = small.storage
        if direction == "rn" and not options.finite:
            steps.append(lambda a: small.narrow(a) if a.dtype == np.float32 else small.narrow_exactly(a))
        else:
            steps.append(
                lambda a: small.format.encode(a.astype(np.float64), direction, saturate_finite=options.finite).astype(
                    np.uint16
                )
            )
    return _chain(steps), storage


def _chain(steps: list[PtxFunction]) -> PtxFunction:
    if len(steps) == 1:
        return steps[0]

    def chained(a: Array) -> Array:
        for step in steps:
            a = step(a)
        return a

    return chained


def _tf32(value: Array, direction: str, finite: bool) -> Array:
    """Bits of tf32. NaN becomes the usual one; .rna only cuts it, and .satfinite then takes one place off."""
    code = TF32.encode(value.astype(np.float64), direction, saturate_finite=finite) << np.uint32(13)
    missing = (value.view(np.uint32) if direction == "rna" else np.uint32(0x7FFFFFFF)) & np.uint32(0xFFFFE000)
    if direction == "rna" and finite:
        missing = missing - np.uint32(0x2000)
    return np.where(np.isnan(value), missing, code)


# -- pairs -------------------------------------------------------------------------------------------------------------


def _pairs(instruction: Instruction, assembler: Assembler, source: str, target: str, options: _Options) -> Operation:
    """Two values at once: ``cvt.f16x2.f32 d, a, b`` (a becomes the upper half), and pairs of narrow formats."""
    if options.integral or options.ftz or options.sat or options.direction is None:
        raise unknown(instruction, "a pair takes .rn (or .rz), .relu and .satfinite")
    if "ue8m0x2" in (source, target):
        return _exponents(instruction, assembler, source, target, options)
    wide = SMALL_FLOATS.get(target)
    narrow = NARROW.get(target.removesuffix("x2")) if target.endswith("x2") else None
    if (wide is None or not wide.pair) and narrow is None:
        raise unknown(instruction, f"no conversion from .{source} to .{target}")
    encode = _pair_encoder(instruction, target, options)
    if source == "f32":
        storage: Any = np.uint8 if target == "e2m1x2" else np.uint16 if narrow else np.uint32

        def from_two(a: Array, b: Array) -> Array:
            a, b = np.broadcast_arrays(a, b)
            return encode(np.stack([b, a], axis=-1))

        return elementwise(instruction, assembler, from_two, storage, np.float32, np.float32, quiet=True)
    whole = SMALL_FLOATS.get(source)
    if whole is not None and whole.pair and narrow is not None:
        storage = np.uint8 if target == "e2m1x2" else np.uint16
        return elementwise(instruction, assembler, lambda a: encode(whole.widen(a)), storage, whole.storage, quiet=True)
    if source.endswith("x2") and source[:-2] in NARROW and wide is not None:
        decode = _pair_decoder(NARROW[source[:-2]])
        storage = np.uint8 if source == "e2m1x2" else np.uint16
        return elementwise(instruction, assembler, lambda a: encode(decode(a)), np.uint32, storage, quiet=True)
    raise unknown(instruction, f"no conversion from .{source} to .{target}")


def _pair_encoder(instruction: Instruction, target: str, options: _Options) -> PtxFunction:
    """From float32 values (lanes, 2), low half first, to packed registers."""
    direction = options.direction or "rn"
    small = SMALL_FLOATS.get(target)
    if small is not None:
        if direction == "rn" and not options.finite:
            return (lambda v: small.narrow(rectify(v))) if options.relu else small.narrow

        def encode_small(value: Array) -> Array:
            value = rectify(value) if options.relu else value
            code = small.format.encode(value.astype(np.float64), direction, saturate_finite=options.finite)
            answer: Array = code[..., 0] | (code[..., 1] << np.uint32(16))
            return answer

        return encode_small
    if direction != "rn" or not options.finite:
        raise unknown(instruction, f"to .{target} takes .rn.satfinite")
    narrow = NARROW[target[:-2]]
    shift = np.uint32(4 if narrow.bits == 4 else 8)

    def encode_narrow(value: Array) -> Array:
        value = rectify(value) if options.relu else value
        code = narrow.encode(value.astype(np.float64), "rn", saturate_finite=True)
        answer: Array = (code[..., 0] | (code[..., 1] << shift)).astype(np.uint8 if narrow.bits == 4 else np.uint16)
        return answer

    return encode_narrow


def _pair_decoder(narrow: Format) -> PtxFunction:
    shift = 4 if narrow.bits == 4 else 8
    mask = (1 << narrow.bits) - 1
    return lambda a: narrow.decode(np.stack([a & mask, (a >> shift) & mask], axis=-1))


def _exponents(
    instruction: Instruction, assembler: Assembler, source: str, target: str, options: _Options
) -> Operation:
    """Two scale factors ``.ue8m0``: the exponent of a magnitude, with the bias of f32; 0 is 2**-127, 255 is NaN."""
    given = (source, target, options.direction)
    if options.relu or (given[0] == "ue8m0x2" and options.finite):
        raise unknown(instruction, "scale factors have no .relu, and .satfinite only as results")
    if given == ("ue8m0x2", "bf16x2", "rn"):

        def decode(a: Array) -> Array:
            code = np.stack([a & 0xFF, a >> 8], axis=-1).astype(np.uint32)
            half = np.where(code == 0xFF, 0x7FFF, np.where(code == 0, 0x40, code << np.uint32(7))).astype(np.uint32)
            answer: Array = half[..., 0] | (half[..., 1] << np.uint32(16))
            return answer

        return elementwise(instruction, assembler, decode, np.uint32, np.uint16)
    if options.direction not in ("rz", "rp") or source not in ("f32", "bf16x2"):
        raise unknown(instruction, f"no conversion from .{source} to .{target}, or not with this rounding")
    up, finite = options.direction == "rp", options.finite

    def encode(value: Array) -> Array:
        bits = value.astype(np.float32).view(np.uint32) & np.uint32(0x7FFFFFFF)
        code = bits >> np.uint32(23)
        if up:  # to the next power of two; the smallest one is 2**-127, a subnormal number
            code += ((bits & np.uint32(0x7FFFFF)) != 0) & (bits > np.uint32(1 << 22)) & (code < 0xFF)
        if finite:
            code = np.where((code == 0xFF) & (bits <= np.uint32(0x7F800000)), np.uint32(0xFE), code)
        answer: Array = (code[..., 0] | (code[..., 1] << np.uint32(8))).astype(np.uint16)
        return answer

    if source == "f32":

        def from_two(a: Array, b: Array) -> Array:
            return encode(np.stack(np.broadcast_arrays(b, a), axis=-1))

        return elementwise(instruction, assembler, from_two, np.uint16, np.float32, np.float32, quiet=True)
    pair = SMALL_FLOATS["bf16x2"]
    return elementwise(instruction, assembler, lambda a: encode(pair.widen(a)), np.uint16, pair.storage, quiet=True)


# -- cvt.pack ---------------------------------------------------------------------------------------------------------


def _pack(instruction: Instruction, assembler: Assembler, modifiers: Modifiers) -> Operation:
    """``cvt.pack.sat.type.s32{.b32} d, a, b{, c}``: clamp a and b, put a above b, and c's low bits above both."""
    modifiers.need("sat")
    appends = modifiers.flag("b32")
    modifiers.need("s32")
    name = modifiers.need("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2")
    modifiers.done()
    bits = int(name[1:])
    if appends != (bits < 16):
        raise unknown(instruction, f".{name} {'needs' if bits < 16 else 'takes no'} .b32 and a fourth operand")
    low, high = (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    mask = np.uint32(2**bits - 1)

    def clamp(value: Array) -> Array:
        return np.clip(value, low, high).astype(np.int32).view(np.uint32) & mask

    def pack(a: Array, b: Array) -> Array:
        return (clamp(a) << np.uint32(bits)) | clamp(b)

    if not appends:
        return elementwise(instruction, assembler, pack, np.uint32, np.int32, np.int32)
    return elementwise(
        instruction,
        assembler,
        lambda a, b, c: (c << np.uint32(2 * bits)) | pack(a, b),
        *(np.uint32, np.int32, np.int32, np.uint32),
    )


__all__ = ["convert", "float_to_integer", "integer_to_integer"]
