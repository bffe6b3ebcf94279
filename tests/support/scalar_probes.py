"""Conversions, rounded arithmetic, packed arithmetic and approximations as probes, and their inputs.

Operands of 16 bits run through all their values. Wider ones are drawn from a few kinds: every exponent with telling
fractions, places where a narrower format must round, small integers and their halves, and words at random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from probes import Probe, Words
from random_words import stream

ROWS = 8192
"""Of an instruction with operands wider than 16 bits."""

ALL_ROWS = 1 << 16

_REGISTER = {
    "f16": "b16", "bf16": "b16", "f32": "b32", "f64": "b64", "tf32": "b32", "f16x2": "b32", "bf16x2": "b32",
    "e4m3x2": "b16", "e5m2x2": "b16", "s8": "b16", "u8": "b16", "s16": "b16", "u16": "b16", "s32": "b32", "u32": "b32",
    "s64": "b64", "u64": "b64", "f32x2": "b64",
}  # fmt: skip


@dataclass(frozen=True)
class ScalarProbe:
    """A scalar instruction as a probe.

    Attributes:
        probe: what to run.
        types: of its operands.
        group: what it belongs to: ``cvt``, ``arithmetic``, ``packed``, ``integer`` or ``approximation``.
    """

    probe: Probe
    types: tuple[str, ...]
    group: str

    @property
    def name(self) -> str:
        return self.probe.name

    @property
    def by_checksum(self) -> bool:
        """Whether checksums of the results are kept, not words: of all but approximations of 32 and 64 bits."""
        return self.group != "approximation" or self.types[0] not in ("f32", "f64")

    def rows(self, seed: int) -> Words:
        """Its inputs; instructions with the same operand types get the same."""
        exhaustive = all(_REGISTER[kind] == "b16" for kind in self.types[:1])
        count = ALL_ROWS if exhaustive and len(self.types) == 1 else ROWS
        columns = [_operand(kind, position, count, seed, len(self.types)) for position, kind in enumerate(self.types)]
        columns = _related(self.types, columns, seed)
        return np.concatenate(
            [_to_words(column, _REGISTER[kind]) for column, kind in zip(columns, self.types, strict=True)], axis=1
        )


def _to_words(codes: np.ndarray, register: str) -> Words:
    if register == "b64":
        return np.ascontiguousarray(codes).view(np.uint32).reshape(len(codes), 2)
    return codes.astype(np.uint32).reshape(-1, 1)


_FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "tf32": (8, 23), "f64": (11, 52)}


def _operand(kind: str, position: int, count: int, seed: int, operands: int) -> np.ndarray:
    """Bits of one operand, as uint64."""
    if kind.endswith("x2"):
        if kind in ("e4m3x2", "e5m2x2"):
            return np.arange(count, dtype=np.uint64)
        part = kind[:-2]
        low = _operand(part, 2 * position, count, seed, 2)
        high = _operand(part, 2 * position + 1, count, seed, 2)
        return low | high << np.uint64(32 if part == "f32" else 16)
    if kind in _FLOATS:
        if count == ALL_ROWS:
            return np.arange(count, dtype=np.uint64)
        return _floats(kind, position, count, seed, single=operands == 1)
    bits = int(kind[1:])
    if count == ALL_ROWS and bits <= 16:
        return np.arange(count, dtype=np.uint64) & np.uint64((1 << bits) - 1 if bits == 16 else 0xFFFF)
    raw = stream(seed, "integer", bits, position, shape=count)
    size = stream(seed, "integer size", bits, position, shape=count) % np.uint64(bits)
    value = (raw >> np.uint64(64 - bits)) >> size
    # All bits below the leading one random, or zeros, ones or a tie with or without one more bit.
    tie = stream(seed, "integer tie", bits, position, shape=count)
    length = np.uint64(bits) - size
    for keep, share in ((24, 1), (53, 2), (11, 3), (8, 4)):
        cut = np.where(length > np.uint64(keep), length - np.uint64(keep), np.uint64(0))
        chosen = (tie % np.uint64(8) == np.uint64(share)) & (cut > 0)
        half = np.where(cut > 0, np.uint64(1) << (np.maximum(cut, 1) - np.uint64(1)), np.uint64(0))
        near = (value >> cut << cut) + half + ((tie >> np.uint64(8)) % np.uint64(3)) - np.uint64(1)
        value = np.where(chosen, near, value)
    negative = (tie >> np.uint64(16)) & np.uint64(1) if kind[0] == "s" else np.zeros(count, np.uint64)
    value = np.where(negative == 1, np.uint64(0) - value, value)
    edges = np.array([0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << (bits - 1)) + 1], np.uint64)
    value[: len(edges) ** 2] = edges[(np.arange(len(edges) ** 2) // len(edges) ** (position % 2)) % len(edges)]
    return value & np.uint64((1 << bits) - 1 if bits < 64 else 2**64 - 1)


def _floats(kind: str, position: int, count: int, seed: int, *, single: bool) -> np.ndarray:
    exponent_bits, fraction_bits = _FLOATS[kind]
    bias, top = (1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1
    a = stream(seed, "float", exponent_bits, position, "a", shape=count)
    b = stream(seed, "float", exponent_bits, position, "b", shape=count)
    c = stream(seed, "float", exponent_bits, position, "c", shape=count)
    sign, part = a & np.uint64(1), b >> np.uint64(64 - fraction_bits)
    kinds = np.arange(count) % 8
    # 0: any word. 1: any exponent, telling fractions. 2, 3, 4: near 1. 5: rounds to a narrower format.
    # 6: integers and a half. 7: small or special.
    any_field = (a >> np.uint64(8)) % np.uint64(top + 1)
    ends = np.array(
        [0, 1, (1 << fraction_bits) - 1, 1 << (fraction_bits - 1), (1 << (fraction_bits - 1)) + 1], np.uint64
    )
    near = np.uint64(bias - 12) + (a >> np.uint64(8)) % np.uint64(20)
    keep = np.array([2, 3, 7, 10, 10, 23], np.uint64)[((c >> np.uint64(4)) % np.uint64(6)).astype(np.intp)]
    keep = np.minimum(keep, np.uint64(fraction_bits - 1))
    drop = np.uint64(fraction_bits) - keep
    tie = (part >> drop << drop) + (np.uint64(1) << (drop - np.uint64(1))) + c % np.uint64(3) - np.uint64(1)
    tie &= np.uint64((1 << fraction_bits) - 1)
    reach = 160 if exponent_bits == 11 else min(bias - 1, 30)
    wide = np.uint64(bias - reach) + (a >> np.uint64(8)) % np.uint64(2 * reach)
    whole = np.uint64(bias) + (a >> np.uint64(8)) % np.uint64(min(66, bias))
    unit = np.minimum(np.maximum(whole.astype(np.int64) - bias + 1, 0), fraction_bits).astype(np.uint64)
    halves = part >> (np.uint64(fraction_bits) - unit) << (np.uint64(fraction_bits) - unit)
    specials = np.array([0, 0, 0, 1, 2, top, top, top - 1], np.uint64)[
        ((c >> np.uint64(4)) % np.uint64(8)).astype(np.intp)
    ]
    special_part = np.where(
        (c >> np.uint64(8)) % np.uint64(3) == 0, part, ends[((c >> np.uint64(10)) % np.uint64(5)).astype(np.intp)]
    )
    if single:  # each value counts: fewer near 1
        wide_random = np.uint64(bias - reach) + (a >> np.uint64(8)) % np.uint64(2 * reach)
        near = np.where(kinds == 2, near, wide_random)
    field = np.select(
        [kinds == 0, kinds == 1, kinds <= 4, kinds == 5, kinds == 6],
        [any_field, any_field, near, wide, whole],
        specials,
    )
    chosen = ends[((c >> np.uint64(10)) % np.uint64(5)).astype(np.intp)]
    fraction = np.select(
        [kinds == 0, kinds == 1, kinds <= 4, kinds == 5, kinds == 6], [part, chosen, part, tie, halves], special_part
    )
    code = (sign << np.uint64(exponent_bits + fraction_bits)) | (field << np.uint64(fraction_bits)) | fraction
    if kind == "f64" and single:  # just below the smallest normal float32
        under = np.uint64((bias - 127) << 52) + np.uint64(1 << 52) - (np.uint64(1) << c % np.uint64(34))
        code = np.where(kinds == 7, np.where(c >> np.uint64(60) == 0, under | sign << np.uint64(63), code), code)
    if position % 3:  # so that kinds meet
        code = np.roll(code, position % 3 * 8 + position)
        shuffled = stream(seed, "order", position, shape=count)
        code = np.where(shuffled % np.uint64(2) == 0, code, code[np.argsort(shuffled, kind="stable")])
    return code.astype(np.uint64)


def _related(types: tuple[str, ...], columns: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """In some rows: sums that nearly cancel, equal operands, results just below the smallest normal number."""
    if len(set(types)) > 1 or types[0] not in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2") or len(types) == 1:
        return columns
    count = len(columns[0])
    turn = np.arange(count) % 16
    base = types[0].removesuffix("x2")
    nudge = stream(seed, "nudge", types[0], shape=count) & np.uint64(3)
    if types[0] != "f16" and types[0] != "bf16":
        signs = {"f32": 1 << 31, "f64": 1 << 63}.get(types[0], 0x80008000)
        opposite = columns[0] ^ np.uint64(signs) ^ nudge
        columns[1] = np.where(turn == 3, opposite, np.where(turn == 11, columns[0], columns[1]))
    if len(types) == 3 and types[0] in ("f32", "f64"):
        real, bits = (np.float32, np.uint32) if types[0] == "f32" else (np.float64, np.uint64)
        with np.errstate(all="ignore"):
            a, b = (column.astype(bits).view(real) for column in columns[:2])
            product = (-(a * b)).view(bits).astype(np.uint64)
        columns[2] = np.where((turn % 4 == 2) & np.isfinite(a) & np.isfinite(b), product ^ nudge, columns[2])
    # (1 + i u)(1 - i u) with u the last place of 1, and its square root of the smallest normal number as a factor each.
    exponent_bits, fraction_bits = _FLOATS[base]
    bias = (1 << (exponent_bits - 1)) - 1
    i = np.arange(count, dtype=np.uint64) // np.uint64(16) * np.uint64(37) % np.uint64(1 << (fraction_bits // 2))
    sign = (nudge & np.uint64(1)) << np.uint64(exponent_bits + fraction_bits)
    above = np.uint64((bias - (bias - 1) // 2) << fraction_bits) + i + sign
    below = np.uint64((bias - (bias - 1 - (bias - 1) // 2)) << fraction_bits) - i - i
    edge = [above, below, np.zeros(count, np.uint64)][: len(types)]
    if types[0].endswith("x2"):
        edge = [low | low << np.uint64(16) for low in edge]
    return [np.where(turn == 5, at, column) for at, column in zip(edge, columns, strict=True)]


# -- the instructions --------------------------------------------------------------------------------------------------


def _one(group: str, instruction: str, result: str, *types: str, spelled: str | None = None) -> ScalarProbe:
    """``instruction o0, i0, i1, ...`` with registers for the types."""
    operands = ", ".join(f"i{n}" for n in range(len(types)))
    statement = spelled or f"{instruction} o0, {operands};"
    inputs = tuple(_REGISTER[kind] for kind in types)
    return ScalarProbe(Probe(instruction, statement, inputs, (_REGISTER[result],)), types, group)


def _loses(source: str, target: str) -> bool:
    """Whether the integer type ``target`` lacks values of ``source``: only then is there .sat."""
    bits = int(target[1:]) - int(source[1:])
    return bits < 0 or (target[0] != source[0] and (bits == 0 or source[0] == "s"))


def _conversions() -> list[ScalarProbe]:
    found = []

    def add(instruction: str, result: str, *types: str) -> None:
        found.append(_one("cvt", instruction, result, *types))

    nearest, directed = ("rn", "rz", "rm", "rp"), ("rz", "rm", "rp")
    floats, integers = ("f16", "bf16", "f32", "f64"), ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
    for source in floats:
        for target in integers[2 if source == "bf16" else 0 :]:
            for rounding in ("rni", "rzi", "rmi", "rpi"):
                for ftz in ("", ".ftz")[: 2 if source == "f32" else 1]:
                    add(f"cvt.{rounding}{ftz}.{target}.{source}", target, source)
    for source in integers:
        for target in floats:
            if target != "bf16" or source not in ("s8", "u8"):
                for rounding in nearest:
                    add(f"cvt.{rounding}.{target}.{source}", target, source)
        for target in ("f16", "f32", "f64"):
            add(f"cvt.rn.sat.{target}.{source}", target, source)
        for target in integers:
            add(f"cvt.{target}.{source}", target, source)
            if _loses(source, target):
                add(f"cvt.sat.{target}.{source}", target, source)
    for rounding in nearest:
        for sat in ("", ".sat"):
            add(f"cvt.{rounding}{sat}.f32.f64", "f32", "f64")
            add(f"cvt.{rounding}.ftz{sat}.f32.f64", "f32", "f64")
            add(f"cvt.{rounding}{sat}.f16.f32", "f16", "f32")
            add(f"cvt.{rounding}{sat}.f16.f64", "f16", "f64")
    for rounding in nearest:
        add(f"cvt.{rounding}.bf16.f64", "bf16", "f64")
        add(f"cvt.{rounding}.ftz.f16.f32", "f16", "f32")
    for sat in ("", ".sat"):
        for source, target in (("f16", "f32"), ("f16", "f64"), ("f32", "f64")):
            add(f"cvt{sat}.{target}.{source}", target, source)
        add(f"cvt.ftz{sat}.f64.f32", "f64", "f32")
        add(f"cvt.ftz{sat}.f32.f16", "f32", "f16")
    for target in ("f32", "f64"):
        add(f"cvt.{target}.bf16", target, "bf16")
    for rounding in nearest:
        add(f"cvt.{rounding}.bf16.f16", "bf16", "f16")
        add(f"cvt.{rounding}.f16.bf16", "f16", "bf16")
    for rounding in ("rni", "rzi", "rmi", "rpi"):
        for kind in ("f16", "f32", "f64"):
            for sat in ("", ".sat"):
                add(f"cvt.{rounding}{sat}.{kind}.{kind}", kind, kind)
        add(f"cvt.{rounding}.ftz.f32.f32", "f32", "f32")
    for kind in ("f16", "bf16"):
        for rounding in ("rn", "rz"):
            for relu in ("", ".relu"):
                for finite in ("", ".satfinite"):
                    add(f"cvt.{rounding}{relu}{finite}.{kind}.f32", kind, "f32")
                    add(f"cvt.{rounding}{relu}{finite}.{kind}x2.f32", f"{kind}x2", "f32", "f32")
    for rounding in directed:
        add(f"cvt.{rounding}.bf16.f32", "bf16", "f32")
    add("cvt.rna.tf32.f32", "tf32", "f32")
    add("cvt.rna.satfinite.tf32.f32", "tf32", "f32")
    for rounding in ("rn", "rz"):
        for relu in ("", ".relu"):
            add(f"cvt.{rounding}{relu}.tf32.f32", "tf32", "f32")
    for small in ("e4m3x2", "e5m2x2"):
        for relu in ("", ".relu"):
            add(f"cvt.rn.satfinite{relu}.{small}.f32", small, "f32", "f32")
            add(f"cvt.rn.satfinite{relu}.{small}.f16x2", small, "f16x2")
            add(f"cvt.rn{relu}.f16x2.{small}", "f16x2", small)
    unique = {probe.name: probe for probe in found}
    return list(unique.values())


def _arithmetic() -> list[ScalarProbe]:
    found = []
    for kind in ("f32", "f64"):
        effects = ("", ".ftz", ".sat", ".ftz.sat") if kind == "f32" else ("",)
        for opcode, operands in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
            for rounding in ("rn", "rz", "rm", "rp"):
                for effect in effects:
                    found.append(_one("arithmetic", f"{opcode}.{rounding}{effect}.{kind}", kind, *[kind] * operands))
        for opcode in ("min", "max"):
            for effect in (
                ("", ".ftz", ".NaN", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs") if kind == "f32" else ("",)
            ):
                found.append(_one("arithmetic", f"{opcode}{effect}.{kind}", kind, kind, kind))
        for opcode in ("neg", "abs"):
            for effect in ("", ".ftz") if kind == "f32" else ("",):
                found.append(_one("arithmetic", f"{opcode}{effect}.{kind}", kind, kind))
        for opcode, operands in (("div", 2), ("rcp", 1), ("sqrt", 1)):
            for rounding in ("rn", "rz", "rm", "rp"):
                for effect in ("", ".ftz") if kind == "f32" else ("",):
                    found.append(_one("arithmetic", f"{opcode}.{rounding}{effect}.{kind}", kind, *[kind] * operands))
    return found


def _packed() -> list[ScalarProbe]:
    found = []
    for base in ("f16", "bf16"):
        for kind in (base, base + "x2"):
            for opcode, operands in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
                rounding = ".rn" if opcode == "fma" else ""
                effects = [""]
                if base == "f16":
                    effects += [".ftz", ".sat", ".ftz.sat"]
                if opcode == "fma":
                    effects += [".relu", ".ftz.relu"] if base == "f16" else [".relu"]
                for effect in effects:
                    found.append(_one("packed", f"{opcode}{rounding}{effect}.{kind}", kind, *[kind] * operands))
            for opcode in ("min", "max"):
                for ftz in ("", ".ftz") if base == "f16" else ("",):
                    for effect in ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"):
                        found.append(_one("packed", f"{opcode}{ftz}{effect}.{kind}", kind, kind, kind))
            for opcode in ("neg", "abs"):
                for ftz in ("", ".ftz") if base == "f16" else ("",):
                    found.append(_one("packed", f"{opcode}{ftz}.{kind}", kind, kind))
    return found


def _integers() -> list[ScalarProbe]:
    found = []
    for a in ("u32", "s32"):
        for b in ("u32", "s32"):
            found.append(_one("integer", f"dp4a.{a}.{b}", "u32", "u32", "u32", "u32"))
            for half in ("lo", "hi"):
                found.append(_one("integer", f"dp2a.{half}.{a}.{b}", "u32", "u32", "u32", "u32"))
    return found


def _approximations() -> list[ScalarProbe]:
    found = []
    for opcode in ("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2"):
        for ftz in ("", ".ftz"):
            found.append(_one("approximation", f"{opcode}.approx{ftz}.f32", "f32", "f32"))
    found.append(_one("approximation", "tanh.approx.f32", "f32", "f32"))
    for kind in ("approx", "full"):
        for ftz in ("", ".ftz"):
            found.append(_one("approximation", f"div.{kind}{ftz}.f32", "f32", "f32", "f32"))
    for name in ("ex2.approx.f16", "ex2.approx.ftz.bf16", "tanh.approx.f16", "tanh.approx.bf16"):
        base = name.rpartition(".")[2]
        found.append(_one("approximation", name, base, base))
        found.append(_one("approximation", name + "x2", base + "x2", base + "x2"))
    for name in ("rcp.approx.ftz.f64", "rsqrt.approx.f64", "rsqrt.approx.ftz.f64"):
        found.append(_one("approximation", name, "f64", "f64"))
    return found


SCALAR_PROBES = (*_conversions(), *_arithmetic(), *_packed(), *_integers(), *_approximations())
