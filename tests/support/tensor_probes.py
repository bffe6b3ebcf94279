"""Tensor instructions as probes, and inputs that show how each of them adds.

A warp is a tile. Registers are filled element by element from a stream of random words, without regard to which row
or column an element is: the kinds of input need no more than the types, and that neighbouring lanes hold neighbouring
k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes import Probe, Words, registers
from random_words import stream
from warptile.isa import mma, mma_sp, wmma

LANES = 32
CAPABILITY = 90
"""The instructions are those of this compute capability (times ten)."""

FLOATS = {
    "f16": (16, 5, 10, 0), "bf16": (16, 8, 7, 0), "tf32": (32, 8, 10, 13), "f32": (32, 8, 23, 0),
    "f64": (64, 11, 52, 0), "e4m3": (8, 4, 3, 0), "e5m2": (8, 5, 2, 0),
}  # fmt: skip
"""Bits of storage, of exponent, of fraction, and those below that are ignored."""

INTEGERS = {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "s32": 32}

FLOAT_KINDS = (
    "normal", "exponents", "ties", "cancellation", "subnormal", "tiny", "zeros", "special", "overflow", "ignored",
)  # fmt: skip
INTEGER_KINDS = ("random", "extreme")


@dataclass(frozen=True)
class TensorProbe:
    """A tensor instruction as a probe.

    Attributes:
        probe: what to run; its inputs are A, B, C and, of a sparse one, the metadata.
        a: element type of A; that of B, C and D may differ.
        b: of B.
        c: of C.
        d: of D.
        counts: registers of A, B and C.
        sparse: bits of a metadata group's nibble, or None.
        copies: for each register of A and B, the one that it must be a copy of.
    """

    probe: Probe
    a: str
    b: str
    c: str
    d: str
    counts: tuple[int, int, int]
    sparse: tuple[int, ...] | None = None
    copies: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def name(self) -> str:
        return self.probe.name

    @property
    def exact(self) -> bool:
        """Whether arithmetic alone gives the result: integers, bits, and f64 as a chain of FMAs."""
        return self.a in INTEGERS or self.a == "f64"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of input that make sense for its types."""
        if self.a in INTEGERS:
            return INTEGER_KINDS
        return tuple(
            kind
            for kind in FLOAT_KINDS
            if not (kind == "ignored" and self.a != "tf32") and not (kind == "tiny" and FLOATS[self.a][1] < 8)
        )

    @property
    def chains(self) -> bool:
        """Whether D can be the C of another."""
        return self.c == self.d

    def tiles(self, kind: str, count: int, seed: int) -> Words:
        """Input rows of ``count`` tiles of one kind; tile i is the same whatever the count."""
        return np.concatenate([self._tile(kind, number, seed) for number in range(count)])

    def _tile(self, kind: str, number: int, seed: int) -> Words:
        columns = []
        codes = {}
        for role, element, count in zip("abc", (self.a, self.b, self.c), self.counts, strict=True):
            bits = FLOATS[element][0] if element in FLOATS else INTEGERS[element]
            shape = (LANES, count * max(bits, 32) // bits)
            choice = stream(seed, self.name, kind, number, role, "choice", shape=shape)
            fraction = stream(seed, self.name, kind, number, role, "fraction", shape=shape)
            if element in FLOATS:
                codes[role] = float_codes(kind, element, role, self.a, self.d, number, choice, fraction)
            else:
                codes[role] = integer_codes(kind, element, choice)
        if kind == "cancellation":
            bits = FLOATS[self.a][0]
            codes["a"][1::2] = codes["a"][0::2] ^ np.uint64(1 << (bits - 1))
            nudge = stream(seed, self.name, kind, number, "nudge", shape=codes["b"][1::2].shape) & np.uint64(3)
            codes["b"][1::2] = codes["b"][0::2] ^ (nudge << np.uint64(FLOATS[self.b][3]))
        for position, (role, element) in enumerate(zip("abc", (self.a, self.b, self.c), strict=True)):
            bits = FLOATS[element][0] if element in FLOATS else INTEGERS[element]
            words = packed(codes[role], bits)
            if self.copies is not None and position < 2:
                words = words[:, list(self.copies[position])]
            columns.append(words)
        if self.sparse is not None:
            nibbles = np.array(self.sparse, np.uint64)
            picked = stream(seed, self.name, kind, number, "metadata", shape=(LANES, 8)) >> np.uint64(16)
            columns.append(packed(nibbles[picked % np.uint64(len(nibbles))], 4))
        return np.concatenate(columns, axis=1)

    def chained(self, rows: Words, results: Words) -> Words:
        """The rows with D in the place of C and the signs of A flipped (of integers, all bits)."""
        a, b, c = (count * (2 if self.a == "f64" else 1) for count in self.counts)
        changed = rows.copy()
        if self.a == "f64":
            changed[:, 1:a:2] ^= np.uint32(0x80000000)
        elif self.a in INTEGERS:
            changed[:, :a] ^= np.uint32(0xFFFFFFFF)
        else:
            changed[:, :a] ^= np.uint32({8: 0x80808080, 16: 0x80008000, 32: 0x80000000}[FLOATS[self.a][0]])
        changed[:, a + b : a + b + c] = results
        return changed


def packed(codes: np.ndarray, bits: int) -> Words:
    """Elements (lanes, elements) as words (lanes, words), lowest bits first."""
    if bits == 64:
        return np.ascontiguousarray(codes).view(np.uint32)
    per_word = 32 // bits
    grouped = (codes & np.uint64((1 << bits) - 1)).reshape(len(codes), -1, per_word)
    shifts = np.arange(per_word, dtype=np.uint64) * np.uint64(bits)
    return np.bitwise_or.reduce(grouped << shifts, axis=-1).astype(np.uint32)


def integer_codes(kind: str, element: str, choice: np.ndarray) -> np.ndarray:
    bits = INTEGERS[element]
    if kind == "random":
        if element == "s32":
            return (choice >> np.uint64(40)) - np.uint64(1 << 23)
        return choice >> np.uint64(64 - bits)
    if element in ("s8", "s4", "s32"):
        lowest = np.uint64(1 << (bits - 1))
        near = (choice >> np.uint64(8)) & np.uint64(7) if element == "s32" else np.uint64(0)
        return np.where(choice & np.uint64(1), lowest + near, lowest - np.uint64(1) - near)
    return np.where(choice & np.uint64(1), np.uint64((1 << bits) - 1), np.uint64(0))


_SPREAD = {
    "f16": (12, 6), "bf16": (30, 15), "tf32": (30, 15), "f64": (200, 100), "e4m3": (6, 8), "e5m2": (14, 14),
}  # fmt: skip
"""How far exponents of the kind "exponents" reach below and above that of 1."""


def float_codes(
    kind: str, element: str, role: str, operand: str, result: str, number: int, choice: np.ndarray, fraction: np.ndarray
) -> np.ndarray:
    """Bits of floats of one kind; ``operand`` is the type of A."""
    _, exponent_bits, fraction_bits, ignored = FLOATS[element]
    bias, top = (1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1
    operand_bias = (1 << (FLOATS[operand][1] - 1)) - 1
    sign = choice & np.uint64(1)
    pick = (choice >> np.uint64(1)) & np.uint64(0xFFFF)
    coin = (choice >> np.uint64(20)) & np.uint64(0xFFFF)
    part = fraction >> np.uint64(64 - fraction_bits)
    addend = role == "c"

    def between(low: int, high: int) -> np.ndarray:
        """Exponent fields."""
        low, high = max(low, 0), min(high, top - (element != "e4m3"))
        return np.uint64(low) + pick % np.uint64(high - low + 1)

    near = between(bias - 2, bias + 1)
    field = near
    if kind in ("exponents", "cancellation", "ignored"):
        below, above = _SPREAD[operand]
        if addend:  # products reach twice as far; for cancellation C is small
            below, above = 2 * below, (-below // 2 if kind == "cancellation" else 2 * above)
        field = between(max(bias - below, 1), bias + above)
    elif kind == "ties":
        ends = np.array([0, 1, (1 << fraction_bits) - 1, (1 << fraction_bits) - 2], np.uint64)
        if fraction_bits > 2:
            ends = np.append(ends, np.array([1 << (fraction_bits - 1), 1 << (fraction_bits - 2)], np.uint64))
        part = ends[(coin % np.uint64(len(ends))).astype(np.intp)]
        field = between(bias - 6, bias + 2)
    elif kind == "subnormal":
        low = np.where(coin & np.uint64(4), pick % np.uint64(4), np.uint64(0))
        field = np.where(coin & np.uint64(1), low, near)
    elif kind == "tiny":
        # Products near the smallest normal number, below it, and below the smallest number there is.
        half, reach = operand_bias // 2, 30 if element == "f64" else 10
        if addend:
            field = between(0, 2 * reach) if number % 3 == 0 else np.zeros_like(pick)
            part = part if number % 3 == 0 else part >> (coin % np.uint64(fraction_bits))
        else:
            low, high = ((-reach, reach), (-2 * reach, -reach // 2), (-14, -10))[number % 3]
            sign = sign if number % 3 < 2 else np.zeros_like(sign)  # what is cut then adds up
            field = between(half + low, half + high)
    elif kind == "zeros":
        zero = (coin % np.uint64(10) < np.uint64(7)) | np.bool_(number == 0)
        if number == 1:  # A is all -0, B positive, C all -0
            zero = np.full(zero.shape, role != "b")
            sign = np.full_like(sign, 0 if role == "b" else 1)
        field, part = np.where(zero, np.uint64(0), field), np.where(zero, np.uint64(0), part)
        if number == 0:
            sign = np.ones_like(sign)
    elif kind == "special":
        chosen = coin % np.uint64(32) == np.uint64(0)
        what = (coin >> np.uint64(5)) % np.uint64(8)
        endless = np.uint64(0)  # the fraction of an infinity
        special_part = np.where(what < np.uint64(4), endless, part | np.uint64(1))
        special_field = np.full_like(field, top)
        if element == "e4m3":  # its only special value is NaN
            special_part = np.full_like(part, (1 << fraction_bits) - 1)
        zero = what == np.uint64(7)
        special_field, special_part = np.where(zero, 0, special_field), np.where(zero, 0, special_part)
        field = np.where(chosen, special_field, field).astype(np.uint64)
        part = np.where(chosen, special_part, part).astype(np.uint64)
    elif kind == "overflow":
        if addend:
            field = np.where(coin & np.uint64(1), np.uint64(top - 1), between(top - 12, top - 1))
        elif result == "f16":
            field = between(bias + 4, bias + 8)
        elif exponent_bits <= 5:
            field = between(top - 3, top - 1)
        else:
            field = between(bias + bias // 2 - 1, bias + bias // 2 + 1)
    code = (sign << np.uint64(exponent_bits + fraction_bits)) | (field << np.uint64(fraction_bits)) | part
    code = code.astype(np.uint64)
    if element == "e4m3" and kind != "special":  # all ones would be NaN
        code = np.where((code & np.uint64(0x7F)) == np.uint64(0x7F), code - np.uint64(1), code)
    code <<= np.uint64(ignored)
    if ignored and kind == "ignored":
        code |= fraction & np.uint64((1 << ignored) - 1)
    return code


# -- the instructions --------------------------------------------------------------------------------------------------


def _probe(
    name: str, a: str, b: str, c: str, d: str, counts: tuple[int, int, int], results: int,
    nibbles: tuple[int, ...] | None, instruction: str, suffix: str,
    copies: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> TensorProbe:  # fmt: skip
    kind = "b64" if a == "f64" else "b32"
    operands = [registers(0, results, "o"), registers(0, counts[0]), registers(counts[0], counts[1])]
    operands.append(registers(counts[0] + counts[1], counts[2]))
    total = sum(counts)
    if nibbles:
        operands.append(f"i{total}{suffix}")
    statement = f"{instruction} {', '.join(operands)};"
    types = (kind,) * total + (("b32",) if nibbles else ())
    probe = Probe(name, statement, types, (kind,) * results, block=LANES)
    return TensorProbe(probe, a, b, c, d, counts, nibbles, copies)


def _dense() -> list[TensorProbe]:
    found = []
    for shape in mma.SHAPES:
        if shape.capability > CAPABILITY:
            continue
        for types in mma.type_lists(shape):
            for layouts in shape.layouts:
                for operation in [name for name, _ in shape.operations] or [""]:
                    for rounding in ("", *shape.roundings):
                        for saturate in (False, True)[: 1 + shape.saturates]:
                            found.append(_dense_probe(shape, types, layouts, operation, rounding, saturate))
    return found


def _dense_probe(
    shape: mma.MmaShape, types: tuple[str, str, str, str], layouts: tuple[str, str], operation: str, rounding: str,
    saturate: bool,
) -> TensorProbe:  # fmt: skip
    name = shape.opcode(types, layouts=layouts, operation=operation, rounding=rounding, saturate=saturate)
    d, a, b, c = types
    counts = tuple(shape.fragment(role, element, layouts).registers for role, element in (("a", a), ("b", b), ("c", c)))
    return _probe(name, a, b, c, d, counts, shape.fragment("c", d, layouts).registers, None, name, "")


def _sparse() -> list[TensorProbe]:
    found = []
    for shape in mma_sp.SHAPES:
        if shape.capability > CAPABILITY:
            continue
        for types in mma_sp.type_lists(shape):
            for saturate in (False, True)[: 1 + shape.saturates]:
                for selector in range(shape.selectors):
                    opcode = shape.opcode(types, saturate=saturate)
                    d, a, b, c = types
                    counts = tuple(
                        shape.fragment(role, element).registers for role, element in (("a", a), ("b", b), ("c", c))
                    )
                    results = shape.fragment("c", d).registers
                    name, nibbles = f"{opcode} selector {selector}", tuple(shape.positions)
                    found.append(_probe(name, a, b, c, d, counts, results, nibbles, opcode, f", {selector}"))
    return found


def _wmma() -> list[TensorProbe]:
    found = []
    for shape in wmma.SHAPES:
        operations = [name for name, _ in shape.operations] or [None]
        flags = ("", ".satfinite") if shape.type in ("s8", "u8", "s4", "u4") else ("",)
        if shape.type == "f64":
            flags = ("", ".rn", ".rz", ".rm", ".rp")
        for c in shape.accumulators:
            for d in shape.accumulators:
                for operation in operations:
                    for flag in flags:
                        found.append(_wmma_probe(shape, c, d, operation, flag))
    return found


def _wmma_probe(shape: wmma.WmmaShape, c: str, d: str, operation: str | None, flag: str) -> TensorProbe:
    element = shape.type
    bits = f".{operation}.popc" if operation else ""
    if element == "f16":
        types = f".{d}.{c}"
    else:
        types = f".{d}.{element}.{element}.{c}"
    rounding, ending = (flag, "") if element == "f64" else ("", flag)
    name = f"wmma.mma{bits}.sync.aligned.row.col.{shape.name}{rounding}{types}{ending}"
    fragments = [shape.fragment(which, kind, 90) for which, kind in (("a", element), ("b", element), ("c", c))]
    copies = tuple(tuple(f.original(r) for r in range(f.registers)) for f in fragments[:2])
    counts = tuple(f.registers for f in fragments)
    results = shape.fragment("c", d, 90).registers
    if element == "f64":
        copies = None
    return _probe(name, element, element, c, d, counts, results, None, name, "", copies)


TENSOR_PROBES = (*_dense(), *_sparse(), *_wmma())
