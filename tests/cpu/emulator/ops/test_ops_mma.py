"""``mma.sync`` and ``mma.sp`` on the emulator: every shape and type against the tables of the PTX ISA written as loops,
and their sums against exact arithmetic."""

import numpy as np
import pytest

from covering import covering
from exact_adder import FLOAT_TYPES, bits_of, dot
from warptile.emulator import emulate
from warptile.errors import AccumulatorOverflow, DivergentCollective, EmulationError, UnknownInstruction
from warptile.isa import catalogue
from warptile.isa.machine_code import table
from warptile.launch.access import Access
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

KNOWN = [m for m in catalogue.multiplications() if m.family != "wmma" and not m.shape.kind and m.capability <= 90]
DENSE = [m for m in KNOWN if m.family == "mma"]
SPARSE = [m for m in KNOWN if m.family == "mma.sp"]
FLOATS = [m for m in KNOWN if m.types[1] in FLOAT_TYPES]
BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "f32": 32, "s32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1,
    "e4m3": 8, "e5m2": 8,
}  # fmt: skip
RANGES = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}
WARPS = 2


def named(multiplications):
    return pytest.mark.parametrize("each", multiplications, ids=lambda each: each.name)


# -- fragments, as the PTX ISA draws them -----------------------------------------------------------------------------


def place(each, matrix, lane, register, element):
    """(row, column) of one element of A (compressed), B, C or D; four products of m8n8k4 are stacked as in the ISA's
    numbering of threads."""
    g, t = lane // 4, lane % 4
    kind = each.types["dabc".index(matrix)]
    if each.shape.name == "m8n8k4" and kind != "f64" and each.types[1] == "f16":
        return quad_place(each, matrix, kind, lane, register, element)
    if matrix in "cd":
        if kind == "f16":
            return g + 8 * register, 2 * t + element
        return g + 8 * (register // 2), 2 * t + register % 2
    tall = each.shape.m == 16
    held = max(1, 32 // BITS[kind])  # in one register
    if matrix == "a":
        row = g + 8 * (register % 2) if tall else g
        step = register // 2 if tall else register
        return row, t * held + element + 4 * held * step
    return t * held + element + 4 * held * register, g


def quad_place(each, matrix, kind, lane, register, element):
    product, upper = lane % 16 // 4, 4 * (lane // 16)
    i = 2 * register + element if kind == "f16" else register
    if matrix == "a":
        row, column = (lane % 4 + upper, i) if each.layouts[0] == "row" else (i + upper, lane % 4)
        return 8 * product + row, column
    if matrix == "b":
        row, column = (lane % 4, i + upper) if each.layouts[1] == "row" else (i, lane % 4 + upper)
        return row, 8 * product + column
    if kind == "f16":
        return 8 * product + lane % 4 + upper, i
    return 8 * product + (lane & 1) + (i & 2) + upper, (i & 4) + (lane & 2) + (i & 1)


def extent(each, matrix):
    """Rows and columns of a fragment."""
    s = each.shape
    products = 4 if s.name == "m8n8k4" and each.types[1] == "f16" else 1
    k = s.k // 2 if each.family == "mma.sp" and matrix == "a" else s.k
    return {"a": (s.m * products, k), "b": (s.k, s.n * products)}.get(matrix, (s.m * products, s.n))


def raw(values, kind):
    """Elements as unsigned integers of their bits."""
    if kind == "f64":
        return np.asarray(values, np.float64).view(np.uint64)
    if kind in FLOAT_TYPES:
        with np.errstate(all="ignore"):
            held = np.asarray(values).astype(FLOAT_TYPES[kind])
        return held.view(f"u{held.itemsize}").astype(np.uint64)
    return np.asarray(values).astype(np.int64).astype(np.uint64) & np.uint64((1 << BITS[kind]) - 1)


def fragment(each, matrix, values):
    """Registers (warps, 32, registers) of matrices (warps, rows, columns) of numbers."""
    kind = each.types["dabc".index(matrix)]
    width = max(32, BITS[kind])
    per_register = width // BITS[kind]
    rows, columns = extent(each, matrix)
    registers = rows * columns // 32 // per_register
    words = np.zeros((len(values), 32, registers), np.uint64)
    bits = raw(values, kind)
    for lane, register, element in np.ndindex(32, registers, per_register):
        row, column = place(each, matrix, lane, register, element)
        words[:, lane, register] |= bits[:, row, column] << np.uint64(BITS[kind] * element)
    return words.astype(f"u{width // 8}")


def matrices(each, words, matrix="d"):
    """The other way round, for D: raw bits."""
    kind = each.types["dabc".index(matrix)]
    per_register = max(32, BITS[kind]) // BITS[kind]
    rows, columns = extent(each, matrix)
    found = np.zeros((len(words), rows, columns), np.uint64)
    for lane, register, element in np.ndindex(32, words.shape[2], per_register):
        row, column = place(each, matrix, lane, register, element)
        part = words[:, lane, register].astype(np.uint64) >> np.uint64(BITS[kind] * element)
        found[:, row, column] = part & np.uint64((1 << BITS[kind]) - 1)
    return found.astype(f"u{max(BITS[kind], 8) // 8}")


def metadata(each, nibbles, selector):
    """Words of whole warps: each row's ``nibbles`` in the lanes that the selector names, noise in the others."""
    words = np.random.default_rng(5).integers(0, 2**32, (len(nibbles), 32), dtype=np.uint64)
    segments = nibbles.shape[2] // 4
    wide = BITS[each.types[1]] >= 16
    for row in range(16):
        g, upper = row % 8, row // 8
        for segment in range(segments):
            if wide and segments == 1:
                lane, half = 4 * g + selector, upper
            elif wide:
                lane, half = 4 * g + 2 * selector + segment, upper
            elif segments == 2:
                lane, half = 4 * g + 2 * selector + upper, segment
            else:
                lane, half = 4 * g + upper + 2 * (segment // 2), segment % 2
            part = sum(nibbles[:, row, 4 * segment + i].astype(np.uint64) << np.uint64(4 * i) for i in range(4))
            mask = np.uint64(0xFFFF) << np.uint64(16 * half)
            words[:, lane] = words[:, lane] & ~mask | part << np.uint64(16 * half)
    return words.astype(np.uint32)


def random_metadata(each, seed):
    """Nibbles (warps, 16, groups) and the column of A of each stored element (warps, 16, k / 2)."""
    random = np.random.default_rng(seed)
    bits, k = BITS[each.types[1]], each.shape.k
    group = {32: 2, 16: 4, 8: 4, 4: 8}[bits]
    choices = {0b0100: [0], 0b1110: [1]} if bits == 32 else {
        first | second << 2: [first, second] for first in range(4) for second in range(first + 1, 4)
    }  # fmt: skip
    if bits == 4:
        choices = {nibble: [2 * i + j for i in kept for j in (0, 1)] for nibble, kept in choices.items()}
    nibbles = random.choice(list(choices), (WARPS, 16, k // group))
    stored = np.array([[[choices[n] for n in row] for row in warp] for warp in nibbles.tolist()])
    stored = stored + group * np.arange(k // group)[:, None]
    return nibbles, stored.reshape(WARPS, 16, k // 2)


# -- running ---------------------------------------------------------------------------------------------------------


def run(opcode, a, b, c, results, *, words=None, selector=0, arch="sm_90a", before="", checks=None):
    """Execute one instruction on registers (warps, 32, registers); D's registers of the same kind, and the report."""
    operands = {"A": a, "B": b, "C": c}
    out = np.zeros((len(a), 32, results[0]), results[1])
    declared, loads, names = "", "", {}
    for name, given in (*operands.items(), ("D", out)):
        size, count = given.itemsize, given.shape[2]
        declared += f".reg .b{8 * size} %{name}<{count}>; .reg .b64 %p{name};\n"
        loads += f"ld.param.u64 %p{name}, [{name}]; mad.wide.u32 %p{name}, %lane, {size * count}, %p{name};\n"
        if name != "D":
            loads += "".join(f"ld.global.b{8 * size} %{name}{i}, [%p{name}+{size * i}];\n" for i in range(count))
        names[name] = "{" + ",".join(f"%{name}{i}" for i in range(count)) + "}"
    rest = ""
    buffers = {**operands, "D": out}
    if words is not None:
        buffers["E"] = words
        declared += ".reg .b64 %pE; .reg .b32 %E;\n"
        loads += "ld.param.u64 %pE, [E]; mad.wide.u32 %pE, %lane, 4, %pE; ld.global.b32 %E, [%pE];\n"
        rest = f", %E, {selector}"
    stores = "".join(f"st.global.b{8 * out.itemsize} [%pD+{out.itemsize * i}], %D{i};\n" for i in range(out.shape[2]))
    text = f"""
.version 9.0
.target {arch}
.address_size 64
.entry k({", ".join(f".param .u64 {name}" for name in buffers)}) {{
.reg .b32 %lane; .reg .pred %q;
{declared} mov.u32 %lane, %tid.x;
{loads} {before}
{opcode} {names["D"]}, {names["A"]}, {names["B"]}, {names["C"]}{rest};
{stores} away: ret;
}}"""
    spec = LaunchSpec("k", (1, 1, 1), (32 * len(a), 1, 1), tuple(Pointer(name) for name in buffers))
    options = {} if checks is None else {"checks": checks}
    report = emulate(parse(text), spec, buffers, accesses={"D": Access(writes=True)}, arch=arch, **options)
    return out, report


def execute(each, values, *, opcode=None, stored=None, **options):
    """`run` on matrices: D's raw bits and the report."""
    registers = [fragment(each, matrix, values[matrix]) for matrix in "abc"]
    kind = each.types[0]
    rows, columns = extent(each, "d")
    size = max(32, BITS[kind])
    results = rows * columns * BITS[kind] // size // 32, np.dtype(f"u{size // 8}")
    out, report = run(opcode or each.opcode, *registers, results, **options)
    return matrices(each, out), report


def inputs(each, make):
    """Matrices of one kind of numbers: ``make(shape, type)``."""
    return {m: make((WARPS, *extent(each, m)), each.types["dabc".index(m)]) for m in "abc"}


def products_of(each, values, stored=None):
    """For each output (warp, row, column), the factors along k: arrays of shape (warps, rows, columns, k)."""
    a, b = values["a"], values["b"].swapaxes(1, 2)
    products = extent(each, "a")[0] // each.shape.m
    left = np.repeat(a[:, :, None], each.shape.n, axis=2)
    if stored is not None:
        return left, np.stack([b[w][:, stored[w]].swapaxes(0, 1) for w in range(len(a))])
    right = b.reshape(len(b), products, 1, each.shape.n, -1)
    right = np.repeat(right, each.shape.m, axis=2).reshape(len(b), products * each.shape.m, each.shape.n, -1)
    return left, right


def small(random, each):
    """Numbers whose sums are exact in every type of the instruction."""

    def make(shape, kind):
        low, high = RANGES.get(kind, (-4, 5))
        if kind in ("f16", "s32") and kind == each.types[3]:
            low, high = -40, 40
        return random.integers(low, high, shape).astype(np.float64)

    return make


def plain(each, left, right, c):
    """The sum in float64: exact for small numbers."""
    if each.opcode.endswith(".xor.popc"):
        return (left != right).sum(axis=-1) + c
    return (left * right).sum(axis=-1) + c


@named(DENSE)
def test_fragments_and_products(each):
    values = inputs(each, small(np.random.default_rng(len(each.name)), each))
    found, report = execute(each, values)
    expected = plain(each, *products_of(each, values), values["c"])
    np.testing.assert_array_equal(found, raw(expected, each.types[0]))
    m, n, k = each.shape.m, each.shape.n, each.shape.k
    assert report.counters["tensor_flops"] == WARPS * 2 * m * n * k * (extent(each, "a")[0] // m)
    made = table().of("sm_90a", each.name).tensor
    assert report.counters["tensor_instructions"] == WARPS * sum(made.values())


@named(SPARSE)
def test_sparse_fragments_and_metadata(each):
    for selector in range(each.shape.selectors):
        random = np.random.default_rng(selector)
        values = inputs(each, small(random, each))
        nibbles, stored = random_metadata(each, selector)
        words = metadata(each, nibbles, selector)
        for opcode in {each.opcode, each.opcode.replace("::ordered_metadata", "")}:
            found, report = execute(each, values, opcode=opcode, words=words, selector=selector)
            expected = plain(each, *products_of(each, values, stored), values["c"])
            np.testing.assert_array_equal(found, raw(expected, each.types[0]))
    assert report.counters["tensor_flops"] == WARPS * each.shape.m * each.shape.n * each.shape.k


# -- sums ------------------------------------------------------------------------------------------------------------


def unusual(random, kind_of_values):
    """Floating-point numbers that show how a sum is made."""

    def make(shape, kind):
        values = random.standard_normal(shape)
        reach = {"e4m3": 5, "e5m2": 10, "f16": 10}.get(kind, 30)
        if kind_of_values == "exponents":
            values *= 2.0 ** random.integers(-reach, reach // 2, shape)
        elif kind_of_values == "special":
            values *= 2.0 ** random.integers(-reach, reach // 2, shape)
            chosen = random.random(shape)
            values = np.where(chosen < 0.004, np.inf, np.where(chosen < 0.006, np.nan, values))
            values = np.where(chosen > 0.8, np.copysign(0.0, values), values)
        elif kind_of_values == "cancellation":
            values = np.where(
                random.random(shape) < 0.5, values, np.sign(values) * 2.0 ** random.integers(-2, 3, shape)
            )
        if kind == "tf32":
            return (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(float)
        with np.errstate(all="ignore"):
            return values.astype(FLOAT_TYPES[kind]).astype(float)

    return make


def steps_of(capability, element, k):
    """How a tensor core takes ``k`` products of one output: steps, fraction bits of a sum, and of an f32 result."""
    if element in ("e4m3", "e5m2") and capability == 89:
        return [range(i, min(i + 16, k)) for i in range(0, k, 16)], 13, 13
    size = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 2, "e5m2": 2}[element]
    terms = (32 if capability >= 90 else 16) // size
    if element in ("e4m3", "e5m2"):  # two instructions of f16: pairs of k, by turns
        halves = [[i for i in range(k) if i % 4 in pair] for pair in ((0, 1), (2, 3))]
        return [half[i : i + terms] for half in halves for i in range(0, k // 2, terms)], 25, 23
    return [range(i, min(i + terms, k)) for i in range(0, k, terms)], 25 if capability >= 90 else 24, 23


def exact(each, left, right, c, capability):
    """One output by exact arithmetic, as a number."""
    result, element, other, addend = each.types
    steps, fraction_bits, kept_bits = steps_of(capability, element, len(left))
    inner = "f16" if result == addend == "f16" else "f32"
    if element in ("e4m3", "e5m2") and capability >= 90:
        total = dot(left, right, 0.0, ("f16", "f16", inner), steps, fraction_bits)
        kind = FLOAT_TYPES[inner]
        return float(kind(total) + kind(c))
    return dot(left, right, c, (element, other, inner), steps, fraction_bits, kept_bits)


CAPABILITIES = {"sm_80": 80, "sm_89": 89, "sm_90a": 90}
ADDERS = [
    (each, arch)
    for each in FLOATS
    for arch, capability in CAPABILITIES.items()
    if each.capability <= capability and each.shape.name != "m8n8k4"
]


SUMS = [
    (*adder, kind) for adder, kind in covering(ADDERS, ["normal", "exponents", "cancellation", "special"], pairs=())
]


@pytest.mark.parametrize(
    ("each", "arch", "kind"), SUMS, ids=[f"{each.name}-{arch}-{kind}" for each, arch, kind in SUMS]
)
def test_sums_are_those_of_exact_arithmetic(each, arch, kind):
    random = np.random.default_rng(sum(map(ord, kind + each.name)))
    values = inputs(each, unusual(random, kind))
    sparse = {}
    stored = None
    if each in SPARSE:
        nibbles, stored = random_metadata(each, 3)
        sparse = {"words": metadata(each, nibbles, 0)}
    found, _ = execute(each, values, arch=arch, checks=frozenset(), **sparse)
    left, right = products_of(each, values, stored)
    for _ in range(12):
        where = tuple(int(random.integers(size)) for size in found.shape)
        with np.errstate(all="ignore"):
            expected = exact(each, left[where], right[where], float(values["c"][where]), CAPABILITIES[arch])
        assert found[where] == bits_of(expected, each.types[0]), where


@named([each for each in DENSE if each.shape.name == "m8n8k4" and each.types[1] == "f16"])
def test_four_small_products_are_a_routine_of_plain_arithmetic(each):
    values = inputs(each, unusual(np.random.default_rng(4), "exponents"))
    found, _ = execute(each, values, checks=frozenset())
    left, right = products_of(each, values)
    c = values["c"].astype(np.float32)

    def fused(i, total):  # products of f16 are exact in f64; rounded to odd there, a sum rounds once more to f32
        x = left[..., i] * right[..., i]
        y = total.astype(np.float64)
        high = x + y
        back = high - x
        low = (x - (high - back)) + (y - back)
        toward = np.where(low > 0, np.inf, -np.inf)
        odd = np.where((low != 0) & (high.view(np.int64) & 1 == 0), np.nextafter(high, toward), high)
        return odd.astype(np.float32)

    if each.types[0] == each.types[3] == "f16":
        first, last = (fused(i + 1, (left[..., i] * right[..., i]).astype(np.float32)) for i in (0, 2))
        expected = c + first + last
    else:
        total = np.zeros_like(c)
        for i in range(4):
            total = fused(i, total)
        expected = c + total
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, bits_of(expected, each.types[0]))


def test_volta_products_on_turing_take_a_step_of_four():
    each = catalogue.by_name()["mma.m8n8k4.f32.f16"]
    values = inputs(each, unusual(np.random.default_rng(8), "exponents"))
    found, report = execute(each, values, arch="sm_75")
    left, right = products_of(each, values)
    for where in ((0, 0, 0), (0, 9, 3), (1, 31, 7), (1, 20, 5)):
        c = float(values["c"][where])
        total = dot(left[where], right[where], c, ("f16", "f16", "f32"), [range(4)], 24)
        assert found[where] == bits_of(total, "f32")
    assert report.counters["tensor_instructions"] == 4 * WARPS  # HMMA.884 in four steps


def test_types_may_differ():
    each = catalogue.by_name()["mma.m16n8k32.f32.e4m3.e5m2"]
    values = inputs(each, unusual(np.random.default_rng(6), "exponents"))
    here, there = (execute(each, values, arch=arch)[0].view(np.float32) for arch in ("sm_89", "sm_90a"))
    left, right = products_of(each, values)
    true = plain(each, left, right, values["c"])
    size = abs(left * right).sum(axis=-1) + abs(values["c"])
    assert (abs(there - true) <= size * 2.0**-22).all()
    assert (abs(here - true) <= size * 2.0**-8).all()
    assert (abs(here - true) > size * 2.0**-22).any()  # thirteen fraction bits are few


@pytest.mark.parametrize("name", ["mma.m16n8k32.s32.s8", "mma.m8n8k32.s32.s4", "mma.sp.m16n8k64.s32.s8"])
def test_integers_wrap_or_saturate(name):
    each = catalogue.by_name()[name]
    low, high = RANGES[each.types[1]]
    most = high - 1
    k = each.shape.k // 2 if each in SPARSE else each.shape.k
    sparse = {}
    if each in SPARSE:
        nibbles, _ = random_metadata(each, 3)
        sparse = {"words": metadata(each, nibbles, 0)}
    for left, right, c, sum_ in ((most, most, 2**31 - 5, most * most), (most, low, -(2**31) + 5, most * low)):
        values = {"a": left, "b": right, "c": c}
        values = {m: np.full((WARPS, *extent(each, m)), value, np.float64) for m, value in values.items()}
        wrapped, _ = execute(each, values, **sparse)
        held, _ = execute(each, values, opcode=each.opcode.replace("row.col", "row.col.satfinite"), **sparse)
        total = c + k * sum_
        assert (wrapped.view(np.int32) == (total + 2**31) % 2**32 - 2**31).all()
        assert (held.view(np.int32) == (2**31 - 1 if total > 0 else -(2**31))).all()


def test_rounding_of_doubles_can_be_chosen():
    each = catalogue.by_name()["mma.m16n8k16.f64.f64"]
    values = {m: np.full((WARPS, *extent(each, m)), x) for m, x in (("a", 2.0**-32), ("b", 2.0**-31), ("c", 1.0))}
    for rounding in ("rn", "rz", "rp", "rm"):
        opcode = each.opcode.replace("row.col", f"row.col.{rounding}")
        found, _ = execute(each, values, opcode=opcode)
        # 1 + 2**-63, sixteen times over: only rounding up adds anything, one unit in the last place each time.
        assert (found.view(np.float64) == (1 + 16 * 2.0**-52 if rounding == "rp" else 1)).all()


def test_doubles_are_added_in_order_of_k():
    each = catalogue.by_name()["mma.m16n8k8.f64.f64"]
    random = np.random.default_rng(12)
    values = inputs(each, lambda shape, kind: random.standard_normal(shape).astype(np.float32).astype(np.float64))
    found, _ = execute(each, values)
    left, right = products_of(each, values)
    total = values["c"]
    for k in range(8):  # products of numbers that are float32 are exact, so each step rounds once
        total = left[..., k] * right[..., k] + total
    np.testing.assert_array_equal(found.view(np.float64), total)


# -- errors ----------------------------------------------------------------------------------------------------------


def test_an_overflowing_accumulator_is_named():
    for name, row in (("mma.m16n8k16.f16.f16", 11), ("mma.m8n8k4.f16.f16", 27)):
        each = catalogue.by_name()[name]
        values = inputs(each, lambda shape, kind: np.zeros(shape))
        values["a"][1, row], values["b"][1] = 200.0, 200.0
        with pytest.raises(AccumulatorOverflow, match=f"row {row}, column 0 of the result is infinite, in thread"):
            execute(each, values)
        execute(each, values, checks=frozenset())


def test_illegal_metadata_is_named():
    each = catalogue.by_name()["mma.sp.m16n8k32.f32.f16"]
    values = inputs(each, lambda shape, kind: np.zeros(shape))
    nibbles, _ = random_metadata(each, 1)
    nibbles[1, 13, 6] = 0b0101
    legal = "0x4, 0x8, 0x9, 0xc, 0xd, 0xe"
    message = rf"thread \(53, .* gives 0x5 as metadata of row 13, columns 24 to 27; legal are {legal}"
    with pytest.raises(EmulationError, match=message):
        execute(each, values, words=metadata(each, nibbles, 0))


def test_all_lanes_of_a_warp_take_part():
    for name in ("mma.m16n8k16.f32.f16", "mma.sp.m16n8k32.f32.f16"):
        each = catalogue.by_name()[name]
        values = inputs(each, lambda shape, kind: np.zeros(shape))
        words = {"words": metadata(each, random_metadata(each, 1)[0], 0)} if each in SPARSE else {}
        with pytest.raises(DivergentCollective, match="not all lanes of a warp"):
            execute(each, values, before="setp.eq.u32 %q, %lane, 40; @%q bra away;", **words)


def registers(count, dtype=np.uint32):
    return np.zeros((1, 32, count), dtype)


@pytest.mark.parametrize(
    ("opcode", "counts", "arch", "message"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", (4, 2, 4), "sm_75", "needs sm_80, this machine is sm_75"),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", (4, 2, 4), "sm_80", "needs sm_89"),
        ("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", (8, 4, 4), "sm_80", "needs sm_90"),
        ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc", (1, 1, 2), "sm_75", "needs sm_80"),
        ("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32", (4, 2, 4), "sm_120a", "kind::f8f6f4"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.f16.f32", (4, 2, 4), "sm_90a", "does not multiply"),
        ("mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16", (4, 2, 2), "sm_90a", "does not multiply"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16", (4, 2, 2), "sm_90a", "does not multiply"),
        ("mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32", (4, 2, 4), "sm_90a", "needs .row.col"),
        ("mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32", (4, 2, 4), "sm_90a", "is for integers"),
        ("mma.sync.aligned.m16n8k16.row.col.rz.f32.f16.f16.f32", (4, 2, 4), "sm_90a", "rz is for f64"),
        ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32", (1, 1, 2), "sm_90a", "bit operations xor, and"),
        ("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32.xor.popc", (2, 1, 4), "sm_90a", "bit operations none"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", (4, 1, 4), "sm_90a", "2 registers where 1 are"),
        ("mma.sync.aligned.m16n8k24.row.col.f32.f16.f16.f32", (4, 2, 4), "sm_90a", "needs one of"),
        ("mma.sync.m16n8k16.row.col.f32.f16.f16.f32", (4, 2, 4), "sm_90a", "needs one of .aligned"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16", (4, 2, 4), "sm_90a", "types of D, A, B and C"),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", (4, 4, 4), "sm_90a", "metadata and a selector"),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_named(opcode, counts, arch, message):
    double = np.uint64 if ".f64" in opcode else np.uint32
    results = (4 if counts[0] > 1 else 2, double)
    with pytest.raises(UnknownInstruction, match=message):
        run(opcode, *(registers(count, double) for count in counts), results, arch=arch)


def test_selectors_are_constants_of_the_shape():
    each = catalogue.by_name()["mma.sp.m16n8k32.f32.f16"]
    values = inputs(each, lambda shape, kind: np.zeros(shape))
    words = metadata(each, random_metadata(each, 1)[0], 0)
    with pytest.raises(UnknownInstruction, match="selector is a constant below 2"):
        execute(each, values, words=words, selector=2)
    with pytest.raises(UnknownInstruction, match="needs sm_80"):
        execute(each, values, words=words, arch="sm_75")
