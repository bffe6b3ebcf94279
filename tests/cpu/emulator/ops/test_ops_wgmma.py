"""``wgmma`` on the emulator: every type, operand layout and way to go wrong, on PTX of one warpgroup.

Shared memory is an image that the test makes, element by element, by the formulas of the PTX ISA.
"""

import numpy as np
import pytest

from exact_adder import FLOAT_TYPES, dot
from warptile.emulator import emulate
from warptile.errors import (
    AccumulatorOverflow,
    DataRace,
    DivergentCollective,
    EmulationError,
    IllegalAddress,
    UninitializedRead,
    UnknownInstruction,
)
from warptile.isa.wgmma import Descriptor
from warptile.launch.access import Access
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

SCHEDULES = ["latest", "earliest", "random:1", "random:2"]
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1}
KS = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32, "b1": 256}
BASE = 1024
"""Where dynamic shared memory starts."""

FENCE, COMMIT, WAIT = (f"wgmma.{each};" for each in (
    "fence.sync.aligned", "commit_group.sync.aligned", "wait_group.sync.aligned 0"
))  # fmt: skip


# -- operands in shared memory, element by element -------------------------------------------------------------------


def byte_of(row, byte, swizzle, leading, stride):
    """K-major: where byte ``byte`` of a row lies."""
    if not swizzle:
        return row // 8 * stride + byte // 16 * leading + row % 8 * 16 + byte % 16
    return row // 8 * stride + row % 8 * swizzle + byte


def transposed_byte_of(row, k, swizzle, leading, stride):
    """MN-major, two bytes an element."""
    if not swizzle:
        return row // 8 * stride + k // 8 * leading + k % 8 * 16 + row % 8 * 2
    wide = swizzle // 2
    return row // wide * leading + k // 8 * stride + k % 8 * swizzle + row % wide * 2


def permuted(address, swizzle):
    return address ^ ((address >> 7) % (swizzle // 16) << 4) if swizzle else address


def raw_of(values, kind):
    """Elements as bytes: (rows, K * size), bits packed."""
    if kind == "b1":
        return np.packbits(values.astype(np.uint8), axis=1, bitorder="little")
    if kind in FLOAT_TYPES:
        with np.errstate(all="ignore"):
            values = values.astype(FLOAT_TYPES[kind])
    else:
        values = values.astype(np.int8 if kind == "s8" else np.uint8)
    return np.ascontiguousarray(values).view(np.uint8)


class Image:
    """Shared memory to be, and descriptors into it."""

    def __init__(self, size=1 << 16):
        self.bytes = np.zeros(size, np.uint8)
        self.top = BASE

    def place(self, values, kind, *, swizzle=128, transposed=False, offset=0):
        """Put an operand of rows along k into the next free place; its descriptor."""
        raw, (rows, _) = raw_of(values, kind), values.shape
        start = self.top + offset
        if transposed:
            k = values.shape[1]
            atom = k // 8 * max(swizzle, 16) * 8
            leading, stride = (atom + 1024, 8 * swizzle) if swizzle else (128 * (rows // 8) + 256, 128)
            if not swizzle:
                leading, stride = 128 * (rows // 8) + 256, 128
        else:
            leading, stride = (128 * -(-rows // 8) + 512, 128) if not swizzle else (16, 8 * swizzle)
        end = 0
        for row, byte in np.ndindex(*raw.shape):
            if transposed:
                at = transposed_byte_of(row, byte // 2, swizzle, leading, stride) + byte % 2
            else:
                at = byte_of(row, byte, swizzle, leading, stride)
            at = permuted(start + at, swizzle)
            self.bytes[at - BASE] = raw[row, byte]
            end = max(end, at)
        self.top = -(-(end + 1) // 1024) * 1024
        return Descriptor(start, leading, stride, 0, swizzle).encode()


# -- running ---------------------------------------------------------------------------------------------------------


def d_place(lane, i):
    """Row and column of element ``i`` of a lane of the warpgroup (PTX ISA, the accumulator's figure)."""
    warp, lane = divmod(lane, 32)
    return 16 * warp + lane // 4 + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * (lane % 4) + (i & 1)


def a_registers(values, kind):
    """A in registers: (128, 4) words; row 16 * warp + g + 8 (r & 1), four lanes along k."""
    raw = raw_of(values, kind)
    words = np.zeros((128, 4), np.uint32)
    for lane, r in np.ndindex(128, 4):
        row = lane // 32 * 16 + lane % 32 // 4 + 8 * (r & 1)
        at = 4 * (lane % 4) + 16 * (r >> 1)
        words[lane, r] = raw[row, at : at + 4].view(np.uint32)[0]
    return words


def launch(image, body, *, results, declared="", buffers=None, schedule="latest", registers=None, threads=128,
           **options):  # fmt: skip
    """Run ``body`` on a warpgroup: it has D0.. (b32), the image in shared memory, and A0..A3 of its lane."""
    size = len(image.bytes)
    out = np.zeros((128, results), np.uint32)
    given = {"S": image.bytes, "A": np.zeros((threads, 4), np.uint32) if registers is None else registers}
    given.update(buffers or {})
    given["D"] = out
    text = f"""
.version 8.7
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 tile[];
.entry k({", ".join(f".param .u64 {name}" for name in given)}) {{
.reg .b32 %t, %i, %w, %D<{results}>, %A<4>, %n<8>; .reg .b64 %p, %q, %da, %db; .reg .pred %more, %yes, %no;
{declared}
mov.u32 %t, %tid.x;
setp.eq.u32 %yes, %t, %t; not.pred %no, %yes;
ld.param.u64 %p, [S]; mul.lo.u32 %i, %t, 4;
copy: cvt.u64.u32 %q, %i; add.u64 %q, %q, %p; ld.global.u32 %w, [%q];
mov.u32 %n0, tile; add.u32 %n0, %n0, %i; st.shared.u32 [%n0], %w;
add.u32 %i, %i, {4 * threads}; setp.lt.u32 %more, %i, {size}; @%more bra copy;
ld.param.u64 %q, [A]; mad.wide.u32 %q, %t, 16, %q;
{" ".join(f"ld.global.u32 %A{i}, [%q+{4 * i}];" for i in range(4))}
fence.proxy.async;
bar.sync 0;
{body}
ld.param.u64 %q, [D]; mad.wide.u32 %q, %t, {4 * results}, %q;
{" ".join(f"st.global.u32 [%q+{4 * i}], %D{i};" for i in range(results))}
ret;
}}"""
    spec = LaunchSpec(
        "k", (1, 1, 1), (threads, 1, 1), tuple(Pointer(name) for name in given), dynamic_shared_bytes=size
    )
    report = emulate(
        parse(text), spec, given, accesses={"D": Access(writes=True)}, arch="sm_90a", schedule=schedule, **options
    )
    return out, report


def vector(count, letter="D"):
    return "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"


def matrix(out, n, result):
    """D's raw bits."""
    held = out.view(np.uint16) if result == "f16" else out
    found = np.zeros((64, n), held.dtype)
    for lane, i in np.ndindex(*held.shape):
        found[d_place(lane, i)] = held[lane, i]
    return found


def numbers(raw, result):
    return raw.view({"f16": np.float16, "f32": np.float32, "s32": np.int32}[result])


def once(kind, result, n, a, b, *, right=None, swizzles=(128, 128), transposed=(False, False), from_registers=False,
         scale="%no", negate=(1, 1), before=FENCE, saturate="", schedule="latest", **options):  # fmt: skip
    """One instruction, waited for: D's raw bits and the report."""
    image = Image()
    registers = count = n // 2 if result != "f16" else n // 4
    image_a = 0 if from_registers else image.place(a, kind, swizzle=swizzles[0], transposed=transposed[0])
    image_b = image.place(b, right or kind, swizzle=swizzles[1], transposed=transposed[1])
    types = f"{saturate}{result}.{kind}.{right or kind}" + (".and.popc" if kind == "b1" else "")
    if kind == "b1":
        types = f"{result}.b1.b1.and.popc"
    left = vector(4, "A") if from_registers else str(image_a)
    tail = "" if kind in ("s8", "u8", "b1") else f", {negate[0]}, {negate[1]}"
    if kind in ("f16", "bf16"):
        tail += "".join(f", {int(t)}" for t in transposed[from_registers:])
    body = f"""{before}
mov.b64 %db, {image_b};
wgmma.mma_async.sync.aligned.m64n{n}k{KS[kind]}.{types} {vector(count)}, {left if from_registers else "%da"}, %db,
{scale}{tail};
{COMMIT} {WAIT}"""
    if not from_registers:
        body = f"mov.b64 %da, {image_a};\n{body}"
    out, report = launch(
        image, body, results=registers, schedule=schedule,
        registers=a_registers(a, kind) if from_registers else None, **options,
    )  # fmt: skip
    return matrix(out, n, result), report


def small(shape, kind, seed):
    """Numbers whose products and sums every type holds exactly."""
    random = np.random.default_rng(seed)
    if kind == "b1":
        return random.integers(0, 2, shape)
    return random.integers(0 if kind == "u8" else -2, 3, shape)


# -- results ---------------------------------------------------------------------------------------------------------

TYPES = [
    ("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32"), ("e4m3", "f32"), ("e4m3", "f16"),
    ("e5m2", "f32"), ("e5m2", "f16"), ("s8", "s32"), ("u8", "s32"), ("b1", "s32"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "result"), TYPES)
@pytest.mark.parametrize("from_registers", [False, True])
def test_every_type(kind, result, from_registers):
    n = 24 if kind not in ("s8", "u8") else 48
    a, b = small((64, KS[kind]), kind, 1), small((n, KS[kind]), kind, 2)
    found, report = once(kind, result, n, a, b, swizzles=(32, 32), from_registers=from_registers)
    assert (numbers(found, result) == a @ b.T).all()
    assert report.counters["tensor_instructions"] == 4
    assert report.counters["tensor_flops"] == 2 * 64 * n * KS[kind]


@pytest.mark.parametrize("n", [8, 40, 128, 200, 256])
def test_every_width(n):
    a, b = small((64, 16), "bf16", n), small((n, 16), "bf16", n + 1)
    found, _ = once("bf16", "f32", n, a, b)
    assert (numbers(found, "f32") == a @ b.T).all()


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_every_layout(swizzle, transposed):
    a, b = small((64, 16), "f16", 3), small((72, 16), "f16", 4)
    other = {0: 128, 32: 0, 64: 32, 128: 64}[swizzle]
    found, _ = once("f16", "f32", 72, a, b, swizzles=(swizzle, other), transposed=transposed)
    assert (numbers(found, "f32") == a @ b.T).all()
    if not transposed[0]:
        found, _ = once("f16", "f16", 72, a, b, swizzles=(0, swizzle), transposed=transposed, from_registers=True)
        assert (numbers(found, "f16") == a @ b.T).all()


@pytest.mark.parametrize(("left", "right"), [("e4m3", "e5m2"), ("e5m2", "e4m3"), ("s8", "u8"), ("u8", "s8")])
def test_mixed_types(left, right):
    result = "s32" if left[1:] == "8" else "f32"
    random = np.random.default_rng(8)
    low = {"s8": -128, "u8": 0}
    a, b = (
        random.integers(low[t], low[t] + 256, shape) if t in low else small(shape, t, 1)
        for t, shape in ((left, (64, 32)), (right, (16, 32)))
    )
    found, _ = once(left, result, 16, a, b, right=right, swizzles=(64, 32))
    assert (numbers(found, result) == a @ b.T).all()


def hard(shape, kind, seed):
    """Numbers of mixed exponents, with cancellation."""
    random = np.random.default_rng(seed)
    spread = {"f16": 6, "bf16": 12, "tf32": 12, "e4m3": 4, "e5m2": 8}[kind]
    values = random.normal(size=shape) * 2.0 ** random.integers(-spread, spread, shape)
    values[random.random(shape) < 0.1] = 0
    return values.astype(FLOAT_TYPES[kind]).astype(np.float64) if kind != "tf32" else (
        (values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "result"), [(k, r) for k, r in TYPES if r != "s32"])
def test_sums_are_those_of_exact_arithmetic(kind, result):
    """One step for the whole k: 16, 8 or 32 terms, cut at 25 fraction bits; 13 and a short result for eight bits."""
    a, b = hard((64, KS[kind]), kind, 5), hard((16, KS[kind]), kind, 6)
    found = numbers(once(kind, result, 16, a, b, checks=frozenset())[0], result)
    eight = kind in ("e4m3", "e5m2")
    random = np.random.default_rng(7)
    for row, column in zip(random.integers(0, 64, 60), random.integers(0, 16, 60), strict=True):
        want = dot(
            a[row].tolist(), b[column].tolist(), 0.0, (kind, kind, result), [range(KS[kind])], 13 if eight else 25,
            13 if eight and result == "f32" else 23,
        )  # fmt: skip
        assert found[row, column] == want, (row, column)


@pytest.mark.parametrize(("kind", "result"), [(k, r) for k, r in TYPES if r != "s32"])
def test_the_accumulator_is_one_of_the_terms(kind, result):
    a, b = hard((64, KS[kind]), kind, 15), hard((8, KS[kind]), kind, 16)
    word, value = {"f32": ("0x40a4cccd", np.float32(5.15)), "f16": ("0x45264526", np.uint16(0x4526).view(np.float16))}[
        result
    ]
    start = " ".join(f"mov.b32 %D{i}, {word};" for i in range(4 if result == "f32" else 2)) + FENCE
    found = numbers(once(kind, result, 8, a, b, scale="%yes", before=start, checks=frozenset())[0], result)
    eight = kind in ("e4m3", "e5m2")
    for row in range(0, 64, 3):
        want = dot(
            a[row].tolist(), b[row % 8].tolist(), float(value), (kind, kind, result), [range(KS[kind])],
            13 if eight else 25, 13 if eight and result == "f32" else 23,
        )  # fmt: skip
        assert found[row, row % 8] == want, row


def test_infinities_and_nan():
    a, b = np.zeros((64, 16)), np.ones((8, 16))
    a[0, 3], a[1, 3], a[1, 4], a[2, 5] = np.inf, np.inf, -np.inf, np.nan
    for kind in ("f16", "bf16"):
        found, _ = once(kind, "f32", 8, a, b)
        assert (found[:4, 0] == [0x7F800000, 0x7FFFFFFF, 0x7FFFFFFF, 0]).all()
    assert (once("f16", "f16", 8, a, b)[0][:4, 7] == [0x7C00, 0x7FFF, 0x7FFF, 0]).all()


@pytest.mark.parametrize("negate", [(-1, 1), (1, -1), (-1, -1)])
@pytest.mark.parametrize("kind", ["f16", "tf32", "e5m2"])
def test_negated_operands(negate, kind):
    a, b = small((64, KS[kind]), kind, 1), small((8, KS[kind]), kind, 2)
    found, _ = once(kind, "f32", 8, a, b, negate=negate)
    assert (numbers(found, "f32") == negate[0] * negate[1] * (a @ b.T)).all()


def test_the_accumulator_is_added_where_scale_d_is_true():
    a, b = small((64, 16), "f16", 1), small((8, 16), "f16", 2)
    start = " ".join(f"mov.b32 %D{i}, 0f41200000;" for i in range(4)) + FENCE
    found, _ = once("f16", "f32", 8, a, b, scale="%yes", before=start)
    assert (numbers(found, "f32") == a @ b.T + 10).all()
    found, _ = once("f16", "f32", 8, a, b, scale="%no", before=start)
    assert (numbers(found, "f32") == a @ b.T).all()


def test_integers_wrap_or_saturate():
    a, b = np.full((64, 32), 127), np.full((8, 32), 127)
    start = " ".join(f"mov.b32 %D{i}, 0x7fffffff;" for i in range(4)) + FENCE
    found, _ = once("s8", "s32", 8, a, b, scale="%yes", before=start)
    assert (numbers(found, "s32") == 0x7FFFFFFF + 32 * 127 * 127 - (1 << 32)).all()
    found, _ = once("s8", "s32", 8, a, b, scale="%yes", before=start, saturate="satfinite.")
    assert (numbers(found, "s32") == 0x7FFFFFFF).all()


def test_f16_accumulators_that_overflow_are_reported():
    a, b = np.full((64, 16), 200.0), np.full((8, 16), 200.0)
    with pytest.raises(AccumulatorOverflow, match="row 0, column 0 of the result is infinite, in thread"):
        once("f16", "f16", 8, a, b)
    assert np.isinf(numbers(once("f16", "f16", 8, a, b, checks=frozenset())[0], "f16")).all()


# -- order -----------------------------------------------------------------------------------------------------------


def chain(body, *, schedule="latest", registers=None, checks=None, n=8, prepare="", threads=128):
    """``body`` with PRODUCT (adds) and FIRST (does not) on f16 operands in shared memory."""
    image = Image()
    a, b = small((64, 16), "f16", 1), small((n, 16), "f16", 2)
    da, db = image.place(a, "f16"), image.place(b, "f16")
    text = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16 {vector(n // 2)}, %da, %db, "
    for word, scale in (("PRODUCT", "%yes"), ("FIRST", "%no")):
        body = body.replace(word, f"{text}{scale}, 1, 1, 0, 0;\n")
    body = body.replace("FROM_A", f"{text.replace('%da', vector(4, 'A'))}%no, 1, 1, 0;\n")
    for word, what in (("FENCE", FENCE), ("COMMIT", COMMIT), ("WAIT1", WAIT.replace(" 0", " 1")), ("WAIT", WAIT)):
        body = body.replace(word, what + "\n")
    options = {"threads": threads} if checks is None else {"checks": checks}
    if registers is None:
        registers = np.concatenate([a_registers(a, "f16"), np.zeros((threads - 128, 4), np.uint32)])
    out, _ = launch(
        image, f"mov.b64 %da, {da}; mov.b64 %db, {db};\n{prepare}{body}", results=n // 2, schedule=schedule,
        registers=registers, **options,
    )  # fmt: skip
    return numbers(matrix(out, n, "f32"), "f32"), a @ b.T


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_products_in_flight_add_up_in_order(schedule):
    found, once_ = chain("FENCE FIRST PRODUCT COMMIT PRODUCT COMMIT WAIT1 FENCE PRODUCT COMMIT WAIT", schedule=schedule)
    assert (found == 4 * once_).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_reading_too_early(schedule):
    for body in ("FENCE FIRST COMMIT", "FENCE FIRST WAIT", "FENCE FIRST COMMIT PRODUCT COMMIT WAIT1"):
        with pytest.raises(DataRace, match=r"st\.global.*has not waited for: %D0, of wgmma.*wait_group") as caught:
            chain(body, schedule=schedule)
        assert caught.value.first.ptx_line < caught.value.location.ptx_line


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_writing_too_early(schedule):
    with pytest.raises(DataRace, match=r"mov\.b32.*writes a register of a product that it has not waited for: %D2"):
        chain("FENCE FIRST COMMIT mov.b32 %D2, 0; WAIT", schedule=schedule)
    with pytest.raises(DataRace, match=r"writes a register .* not waited for: %A1"):
        chain("FENCE FROM_A COMMIT mov.b32 %A1, 0; WAIT", schedule=schedule)
    found, want = chain("FENCE FROM_A COMMIT mov.b32 %w, %A1; WAIT mov.b32 %A1, 0;", schedule=schedule)
    assert (found == want).all()


def test_a_missing_fence():
    with pytest.raises(DataRace, match=r"has not executed wgmma\.fence"):
        chain("FIRST COMMIT WAIT")
    with pytest.raises(DataRace, match=r"uses register %D1, which mov\.b32 %D1, 0 accessed at .*no wgmma\.fence") as e:
        chain("FENCE mov.b32 %D1, 0; FIRST COMMIT WAIT")
    assert e.value.first.ptx_line <= e.value.location.ptx_line
    with pytest.raises(DataRace, match=r"uses register %A3, which mov\.b32 %A3"):
        chain("FENCE mov.b32 %A3, 0; FROM_A COMMIT WAIT")
    found, want = chain("mov.b32 %D1, 0; FENCE FIRST COMMIT WAIT")
    assert (found == want).all()


def test_a_fence_counts_for_the_warps_that_execute_it():
    some = "setp.lt.u32 %more, %t, 32; @%more bra past; FENCE past:"
    with pytest.raises(DataRace, match=r"thread \(0, 0, 0\) of .* has not executed wgmma\.fence"):
        chain(f"{some} FIRST COMMIT WAIT")
    with pytest.raises(DataRace, match=r"thread \(0, 0, 0\) of .* uses register %D2, which mov"):
        chain(f"FENCE mov.b32 %D2, 0; {some} FIRST COMMIT WAIT")


def test_an_accumulator_that_nothing_has_written():
    with pytest.raises(UninitializedRead, match=r"adds register %D0, which nothing has written; scale-d is true"):
        chain("FENCE PRODUCT COMMIT WAIT")


def test_shapes_may_not_change_in_flight():
    other = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {vector(4)}, %da, %db, %yes, 1, 1, 0, 0;"
    with pytest.raises(DataRace, match="D of an unfinished product of another shape"):
        chain(f"FENCE FIRST COMMIT {other} COMMIT WAIT", n=16)
    chain(f"FENCE FIRST COMMIT WAIT FENCE {other} COMMIT WAIT", n=16)


def test_shared_memory_overwritten_too_early():
    """By another warp, behind a barrier, before the products have been waited for."""
    store = "mov.u32 %n0, tile; mad.lo.u32 %n0, %t, 16, %n0; st.shared.u32 [%n0], %t;"
    with pytest.raises(DataRace, match=r"started a copy from it with wgmma.*has not waited for its product"):
        chain(f"FENCE FIRST COMMIT bar.sync 0; {store} WAIT")
    found, want = chain(f"FENCE FIRST COMMIT WAIT bar.sync 0; {store}")
    assert (found == want).all()
    assert (chain(f"FENCE FIRST COMMIT WAIT {store}")[0] == want).all()  # whoever has waited may write
    late, want = chain(f"FENCE FIRST COMMIT bar.sync 0; {store} WAIT", checks=frozenset())
    assert (late != want).any()
    early, want = chain(f"FENCE FIRST COMMIT bar.sync 0; {store} WAIT", checks=frozenset(), schedule="earliest")
    assert (early == want).all()


def pipeline(consumer, *, arriving=64, schedule="latest"):
    """A fifth warp overwrites the operands when thread ``arriving`` of the warpgroup says so."""
    prepare = """.reg .pred %done; .reg .b64 %old; mov.u32 %n1, tile; add.u32 %n1, %n1, 65528;
setp.ne.u32 %more, %t, 0; @%more bra made; mbarrier.init.shared.b64 [%n1], 1; made: bar.sync 0;
"""
    return chain(
        f"""setp.ge.u32 %more, %t, 128; @%more bra producer;
{consumer} setp.ne.u32 %more, %t, {arriving}; @%more bra end;
mbarrier.arrive.shared.b64 %old, [%n1]; bra end;
producer: mbarrier.try_wait.parity.shared.b64 %done, [%n1], 0; @!%done bra producer;
mov.u32 %n0, tile; mad.lo.u32 %n0, %t, 16, %n0; st.shared.u32 [%n0], %t; ret;
end: WAIT
""",
        prepare=prepare, schedule=schedule, threads=160,
    )  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_thread_that_has_waited_speaks_for_its_warpgroup(schedule):
    for arriving in (0, 64, 127):
        found, want = pipeline("FENCE FIRST COMMIT WAIT", arriving=arriving, schedule=schedule)
        assert (found == want).all()
    with pytest.raises(DataRace, match=r"writes it with st.*a copy from it with wgmma.*has not waited for its product"):
        pipeline("FENCE FIRST COMMIT", schedule=schedule)


def test_plain_stores_need_a_proxy_fence():
    store = "mov.u32 %n0, tile; mad.lo.u32 %n0, %t, 4, %n0; ld.shared.u32 %w, [%n0]; st.shared.u32 [%n0], %w;"
    with pytest.raises(DataRace, match=r"fence\.proxy\.async"):
        chain(f"{store} bar.sync 0; FENCE FIRST COMMIT WAIT")
    found, want = chain(f"{store} fence.proxy.async; bar.sync 0; FENCE FIRST COMMIT WAIT")
    assert (found == want).all()


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_warps_of_a_warpgroup_keep_together():
    skip = "setp.lt.u32 %more, %t, 32; @%more bra past;"
    with pytest.raises(DivergentCollective, match="of its warpgroup warp 0 never execute it"):
        chain(f"FENCE {skip} FIRST COMMIT WAIT past:", checks=frozenset())
    pick = "setp.lt.u32 %more, %t, 64; selp.b64 %da, %da, %db, %more;"
    with pytest.raises(DivergentCollective, match="as descriptor of A"):
        chain(f"FENCE {pick} FIRST COMMIT WAIT")
    one = "setp.lt.u32 %more, %t, 5; selp.b64 %da, %da, %db, %more;"
    with pytest.raises(DivergentCollective, match="differ in the descriptor of A"):
        chain(f"FENCE {one} FIRST COMMIT WAIT")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warps_may_come_one_after_the_other(schedule):
    spread = "shr.u32 %i, %t, 5;\nagain: setp.eq.u32 %more, %i, 0; @%more bra on; sub.u32 %i, %i, 1; bra again;\n"
    found, want = chain(f"{spread} on: FENCE FIRST COMMIT WAIT", schedule=schedule)
    assert (found == want).all()
    branch = "setp.lt.u32 %more, %t, 32; @%more bra other;"
    with pytest.raises(DivergentCollective, match=r"execute wgmma.* in its place"):
        chain(f"FENCE {branch} FIRST bra both;\nother: FIRST both: COMMIT WAIT", schedule=schedule)


def test_addresses_outside_shared_memory():
    with pytest.raises(IllegalAddress, match="bytes of shared memory"):
        chain(f"mov.b64 %da, {Descriptor(0x3FFF0, 16, 1024, 0, 128).encode()}; FENCE FIRST COMMIT WAIT")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("m64n8k16.f16.bf16.bf16 {%D0, %D1}, %da, %db, %no, 1, 1, 0, 0", "does not multiply"),
        ("m64n40k32.s32.s8.s8 {%D0}, %da, %db, %no", "does not multiply"),
        ("m64n8k16.f32.f16.f16 {%D0, %D1}, %da, %db, %no, 1, 1, 0, 0", "D takes 4 registers where 2"),
        ("m64n8k8.f32.tf32.tf32 {%D0, %D1, %D2, %D3}, %da, %db, %no, 1, 1, 0, 0", "8 operands where 6"),
        ("m64n8k16.f32.f16.f16 {%D0, %D1, %D2, %D3}, %da, %db, %no, 2, 1, 0, 0", "needs a constant, one of 1, -1"),
        ("m64n8k16.satfinite.f32.f16.f16 {%D0, %D1, %D2, %D3}, %da, %db, %no, 1, 1, 0, 0", "satfinite is for integers"),
        ("m64n8k256.s32.b1.b1 {%D0, %D1, %D2, %D3}, %da, %db, %no", "b1, which needs it"),
        ("m64n12k16.f32.f16.f16 {%D0}, %da, %db, %no, 1, 1, 0, 0", "needs one of"),
    ],
)
def test_what_is_refused(text, why):
    with pytest.raises(UnknownInstruction, match=why):
        chain(f"wgmma.mma_async.sync.aligned.{text};")


# -- sparse ------------------------------------------------------------------------------------------------------------

PAIRS = {0x4: (0, 1), 0x8: (0, 2), 0x9: (1, 2), 0xC: (0, 3), 0xD: (1, 3), 0xE: (2, 3)}


def metadata_words(nibbles, kind, selector):
    """Words (128,) of nibbles (64, groups); the same in each warp as in mma.sp."""
    words = np.random.default_rng(1).integers(0, 1 << 32, 128, dtype=np.uint64)
    for row, i in np.ndindex(*nibbles.shape):
        segment, place = divmod(i, 4)
        warp, inner = divmod(row, 16)
        g, upper = inner % 8, inner // 8
        if BITS[kind] >= 16:
            lane, half = 4 * g + 2 * selector + segment, upper
        else:
            lane, half = 4 * g + upper + 2 * (segment // 2), segment % 2
        shift = np.uint64(16 * half + 4 * place)
        word = words[32 * warp + lane]
        words[32 * warp + lane] = word & ~(np.uint64(15) << shift) | np.uint64(nibbles[row, i]) << shift
    return words.astype(np.uint32)


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32", "e4m3", "s8", "u8"])
@pytest.mark.parametrize("from_registers", [False, True])
@pytest.mark.parametrize("selector", [0, 1])
def test_sparse(kind, from_registers, selector):
    if selector and BITS[kind] == 8:
        pytest.skip("all lanes hold metadata")
    n, k, random = 16, 2 * KS[kind], np.random.default_rng(3)
    group, choices = (2, {0x4: (0,), 0xE: (1,)}) if kind == "tf32" else (4, PAIRS)
    nibbles = random.choice(list(choices), (64, k // group))
    whole = np.zeros((64, k), np.int64)
    stored = small((64, k // 2), kind, 4)
    for row in range(64):
        columns = [group * i + kept for i, nibble in enumerate(nibbles[row]) for kept in choices[int(nibble)]]
        whole[row, columns] = stored[row]
    b = small((n, k), kind, 5)
    image = Image()
    da = image.place(stored, kind, swizzle=64)
    db = image.place(b, kind, swizzle=128)
    result = "s32" if kind[1:] == "8" else "f32"
    tail = "" if result == "s32" else ", 1, 1" + (", 0" * (2 - from_registers) if BITS[kind] == 16 else "")
    left = vector(4, "A") if from_registers else "%da"
    body = f"""mov.b64 %da, {da}; mov.b64 %db, {db};
ld.param.u64 %q, [E]; mad.wide.u32 %q, %t, 4, %q; ld.global.u32 %w, [%q];
{FENCE}
wgmma.mma_async.sp.sync.aligned.m64n{n}k{k}.{result}.{kind}.{kind} {vector(n // 2)}, {left}, %db, %w, {selector},
%no{tail};
{COMMIT} {WAIT}"""
    words = metadata_words(nibbles, kind, selector)
    options = {"results": n // 2, "registers": a_registers(stored, kind)}
    out, report = launch(image, body, buffers={"E": words}, **options)
    assert (numbers(matrix(out, n, result), result) == whole @ b.T).all()
    assert report.counters["tensor_flops"] == 64 * n * k
    words[:] = 0
    with pytest.raises(EmulationError, match="gives 0x0 as metadata of row 0 of its warp"):
        launch(image, body, buffers={"E": words}, **options)
