"""Loops over lanes as LLVM assembly: each takes its operands from registers or constants and writes one register.

A loop is named by what it computes and where its sources come from: ``add.i32:rr`` of two registers, ``add.i32:rc`` of
a register and a constant. Its function takes the address of a record (`step_records`), the first lane, and how many
lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from warptile.emulator.compiled_steps.step_records import OPERANDS

FLOAT_COMPARISONS = (
    "oeq", "one", "olt", "ole", "ogt", "oge", "ueq", "une", "ult", "ule", "ugt", "uge", "ord", "uno",
)  # fmt: skip
"""LLVM's names: ordered ones are false if a source is NaN, unordered ones true."""

_BITS = {"i1": 8, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64}
_SMALLEST_NORMAL = "0x3810000000000000"
_NAN = {"float": "0x7FFFFFFFE0000000", "double": "0xFFF8000000000000"}


class Body:
    """Instructions of LLVM, each of which defines a value."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def put(self, text: str) -> str:
        """Add an instruction; the name of its value."""
        name = f"%t{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name


Emit = Callable[..., str]


@dataclass(frozen=True)
class LaneOperation:
    """What one lane computes.

    Attributes:
        result: LLVM's type of the result.
        sources: and of the sources.
        emit: adds the instructions to a `Body`, given the names of the sources; the name of the result.
        constants: which sources may be constants, a letter each: ``r`` a register only, ``k`` a constant only, ``c``
            either.
    """

    result: str
    sources: tuple[str, ...]
    emit: Emit
    constants: str

    def forms(self) -> Iterator[str]:
        """Each combination of registers and constants; of several constants alone there is none."""
        for form in product(*({"c": "rc", "r": "r", "k": "c"}[each] for each in self.constants)):
            if "r" in form or len(form) == 1:
                yield "".join(form)


def _binary(instruction: str, kind: str) -> LaneOperation:
    commutes = instruction in ("add", "mul", "and", "or", "xor")
    return LaneOperation(
        kind, (kind, kind), lambda b, x, y: b.put(f"{instruction} {kind} {x}, {y}"), "rc" if commutes else "cc"
    )


def _intrinsic(name: str, kind: str, sources: int) -> LaneOperation:
    def emit(b: Body, *values: str) -> str:
        listed = ", ".join(f"{kind} {value}" for value in values)
        return b.put(f"call {kind} @llvm.{name}.{kind}({listed})")

    return LaneOperation(kind, (kind,) * sources, emit, "r" + "c" * (sources - 1))


def _shift(instruction: str, kind: str) -> LaneOperation:
    """Amounts of 32 bits; by the width and more, as by the largest amounts of PTX: zeros or signs."""
    width = _BITS[kind]

    def emit(b: Body, value: str, amount: str) -> str:
        most = b.put(f"call i32 @llvm.umin.i32(i32 {amount}, i32 {width - 1})")
        if kind == "i64":
            most = b.put(f"zext i32 {most} to i64")
        elif kind == "i16":
            most = b.put(f"trunc i32 {most} to i16")
        shifted = b.put(f"{instruction} {kind} {value}, {most}")
        if instruction == "ashr":
            return shifted
        beyond = b.put(f"icmp ugt i32 {amount}, {width - 1}")
        return b.put(f"select i1 {beyond}, {kind} 0, {kind} {shifted}")

    return LaneOperation(kind, (kind, "i32"), emit, "cc")


def _wide(b: Body, extend: str, narrow: str, wide: str, x: str, y: str) -> str:
    left, right = (b.put(f"{extend} {narrow} {value} to {wide}") for value in (x, y))
    return b.put(f"mul {wide} {left}, {right}")


def _products(narrow: str, wide: str) -> Iterator[tuple[str, LaneOperation]]:
    """``mul`` and ``mad`` of all parts; ``narrow`` has half the bits of ``wide``."""

    def low(b: Body, x: str, y: str, z: str) -> str:
        return b.put(f"add {narrow} {b.put(f'mul {narrow} {x}, {y}')}, {z}")

    yield f"mad.lo.{narrow}", LaneOperation(narrow, (narrow,) * 3, low, "rcc")
    for letter, extend in (("s", "sext"), ("u", "zext")):

        def whole(b: Body, x: str, y: str, extend: str = extend) -> str:
            return _wide(b, extend, narrow, wide, x, y)

        def high(b: Body, x: str, y: str, extend: str = extend) -> str:
            shifted = b.put(f"lshr {wide} {_wide(b, extend, narrow, wide, x, y)}, {_BITS[narrow]}")
            return b.put(f"trunc {wide} {shifted} to {narrow}")

        def whole_sum(b: Body, x: str, y: str, z: str, extend: str = extend) -> str:
            return b.put(f"add {wide} {_wide(b, extend, narrow, wide, x, y)}, {z}")

        yield f"mul.wide.{letter}.{narrow}", LaneOperation(wide, (narrow, narrow), whole, "rc")
        yield f"mul.hi.{letter}.{narrow}", LaneOperation(narrow, (narrow, narrow), high, "rc")
        yield f"mad.wide.{letter}.{narrow}", LaneOperation(wide, (narrow, narrow, wide), whole_sum, "rcc")


def _comparison(instruction: str, kind: str) -> LaneOperation:
    return LaneOperation("i1", (kind, kind), lambda b, x, y: b.put(f"{instruction} {kind} {x}, {y}"), "rc")


def _select(kind: str) -> LaneOperation:
    return LaneOperation(
        kind, (kind, kind, "i1"), lambda b, x, y, p: b.put(f"select i1 {p}, {kind} {x}, {kind} {y}"), "ccr"
    )


def _conversion(instruction: str, source: str, target: str) -> LaneOperation:
    return LaneOperation(target, (source,), lambda b, x: b.put(f"{instruction} {source} {x} to {target}"), "r")


# -- floating point: as `arithmetic.fused` says ------------------------------------------------------------------------


def _bits(b: Body, value: str, kind: str) -> str:
    return b.put(f"bitcast {kind} {value} to i{_BITS[kind]}")


def _float(b: Body, value: str, kind: str) -> str:
    return b.put(f"bitcast i{_BITS[kind]} {value} to {kind}")


def _canonical(b: Body, value: str) -> str:
    """A float32 with the only NaN that instructions give."""
    ordinary = b.put(f"fcmp ord float {value}, 0.0")
    return b.put(f"select i1 {ordinary}, float {value}, float {_NAN['float']}")


def _quieted(b: Body, result: str, values: tuple[str, ...]) -> str:
    """A float64 result; a NaN is that of the second source, else of the third, else of the first, or a new one."""
    order = (*values[1:], values[0])
    found, wanted = f"i64 {-(1 << 51)}", ""
    for value in reversed(order):
        number = b.put(f"fcmp ord double {value}, 0.0")
        quiet = b.put(f"or i64 {_bits(b, value, 'double')}, {1 << 51}")
        wanted = b.put(f"select i1 {number}, {found}, i64 {quiet}")
        found = f"i64 {wanted}"
    ordinary = b.put(f"fcmp ord double {result}, 0.0")
    return b.put(f"select i1 {ordinary}, double {result}, double {_float(b, wanted, 'double')}")


def _arithmetic(opcode: str, kind: str) -> LaneOperation:
    count = 3 if opcode == "fma" else 2

    def emit(b: Body, *values: str) -> str:
        if opcode == "fma":
            listed = ", ".join(f"{kind} {value}" for value in values)
            result = b.put(f"call {kind} @llvm.fma.{'f32' if kind == 'float' else 'f64'}({listed})")
        else:
            result = b.put(f"f{opcode} {kind} {values[0]}, {values[1]}")
        return _canonical(b, result) if kind == "float" else _quieted(b, result, values)

    return LaneOperation(kind, (kind,) * count, emit, "c" * count)


def _extremum(opcode: str) -> LaneOperation:
    compare, join = ("olt", "or") if opcode == "min" else ("ogt", "and")

    def emit(b: Body, x: str, y: str) -> str:
        tie = _float(b, b.put(f"{join} i32 {_bits(b, x, 'float')}, {_bits(b, y, 'float')}"), "float")
        first = b.put(f"or i1 {b.put(f'fcmp {compare} float {x}, {y}')}, {b.put(f'fcmp uno float {y}, 0.0')}")
        other = b.put(f"select i1 {first}, float {x}, float {y}")
        equal = b.put(f"fcmp oeq float {x}, {y}")
        return _canonical(b, b.put(f"select i1 {equal}, float {tie}, float {other}"))

    return LaneOperation("float", ("float", "float"), emit, "rc")


def _sign(opcode: str) -> LaneOperation:
    def emit(b: Body, x: str) -> str:
        changed = b.put(f"{'xor' if opcode == 'neg' else 'and'} i32 {_bits(b, x, 'float')}, "
                        f"{-(1 << 31) if opcode == 'neg' else (1 << 31) - 1}")  # fmt: skip
        return _canonical(b, _float(b, changed, "float"))

    return LaneOperation("float", ("float",), emit, "r")


def _power_of_two(b: Body, x: str, table: str, squares: str) -> str:
    """`arithmetic.mufu`'s ``ex2``, given the addresses of its table and of the squares."""
    size = b.put(f"fpext float {b.put(f'call float @llvm.fabs.f32(float {x})')} to double")
    capped = b.put(f"select i1 {b.put(f'fcmp olt double {size}, 1024.0')}, double {size}, double 1024.0")
    units = b.put(f"fptosi double {b.put(f'fmul double {capped}, {float(1 << 23)}')} to i64")
    whole = b.put(f"icmp eq i64 {b.put(f'and i64 {units}, {(1 << 23) - 1}')}, 0")
    below = b.put(f"select i1 {whole}, i64 {b.put(f'sub i64 0, {units}')}, i64 {b.put(f'xor i64 {units}, -1')}")
    bits = _bits(b, x, "float")
    steps = b.put(f"select i1 {b.put(f'icmp slt i32 {bits}, 0')}, i64 {below}, i64 {units}")
    fraction = b.put(f"and i64 {steps}, {(1 << 23) - 1}")
    low = b.put(f"and i64 {fraction}, {(1 << 17) - 1}")
    first = b.put(f"mul i64 {b.put(f'lshr i64 {fraction}, 17')}, 3")

    def read(array: str, index: str) -> str:
        place = b.put(f"getelementptr i64, ptr {b.put(f'inttoptr i64 {array} to ptr')}, i64 {index}")
        return b.put(f"load i64, ptr {place}, !llvm.access.group !0")

    constant, slope, curve = (read(table, b.put(f"add i64 {first}, {column}")) for column in range(3))
    total = b.put(f"add i64 {constant}, {b.put(f'mul i64 {slope}, {low}')}")
    total = b.put(f"add i64 {total}, {b.put(f'mul i64 {curve}, {read(squares, low)}')}")
    significand = b.put(f"sitofp i64 {b.put(f'ashr i64 {total}, 15')} to double")
    exponent = b.put(f"call i64 @llvm.smax.i64(i64 {b.put(f'ashr i64 {steps}, 23')}, i64 -999)")
    biased = b.put(f"shl i64 {b.put(f'add i64 {exponent}, {1023 - 23}')}, 52")
    scaled = b.put(f"fmul double {significand}, {b.put(f'bitcast i64 {biased} to double')}")
    found = b.put(f"fptrunc double {scaled} to float")
    tiny = b.put(f"fcmp olt float {found}, {_SMALLEST_NORMAL}")
    found = b.put(f"select i1 {tiny}, float 0.0, float {found}")
    zero = b.put(f"icmp eq i32 {b.put(f'and i32 {bits}, {255 << 23}')}, 0")
    found = b.put(f"select i1 {zero}, float 1.0, float {found}")
    number = b.put(f"fcmp ord float {x}, 0.0")
    return b.put(f"select i1 {number}, float {found}, float {_NAN['float']}")


def _exponential(*, flushes: bool) -> LaneOperation:
    """``ex2.approx``; without .ftz, that of half a very small operand is squared."""

    def emit(b: Body, x: str, table: str, squares: str) -> str:
        if flushes:
            return _power_of_two(b, x, table, squares)
        low = b.put(f"fcmp olt float {x}, -126.0")
        half = b.put(f"select i1 {low}, float {b.put(f'fmul float {x}, 0.5')}, float {x}")
        root = _power_of_two(b, half, table, squares)
        return b.put(f"select i1 {low}, float {b.put(f'fmul float {root}, {root}')}, float {root}")

    return LaneOperation("float", ("float", "i64", "i64"), emit, "rkk")


def _operations() -> Iterator[tuple[str, LaneOperation]]:
    for kind in ("i16", "i32", "i64"):
        for name in ("add", "sub", "mul", "and", "or", "xor"):
            yield f"{name}.{kind}", _binary(name, kind)
        for name, instruction in (("shl", "shl"), ("shr.u", "lshr"), ("shr.s", "ashr")):
            yield f"{name}.{kind}", _shift(instruction, kind)
        for letter, sign in (("s", "s"), ("u", "u")):
            for name in ("min", "max"):
                yield f"{name}.{letter}.{kind}", _intrinsic(f"{sign}{name}", kind, 2)
        yield f"neg.{kind}", LaneOperation(kind, (kind,), lambda b, x, k=kind: b.put(f"sub {k} 0, {x}"), "r")
        yield f"not.{kind}", LaneOperation(kind, (kind,), lambda b, x, k=kind: b.put(f"xor {k} {x}, -1"), "r")
        yield f"select.{kind}", _select(kind)
        yield f"move.{kind}", LaneOperation(kind, (kind,), lambda b, x: x, "r")
        yield f"fill.{kind}", LaneOperation(kind, (kind,), lambda b, x: x, "k")
        for compare in ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"):
            yield f"setp.{compare}.{kind}", _comparison(f"icmp {compare}", kind)
    for name in ("and", "or", "xor"):
        yield f"{name}.i1", _binary(name, "i1")
    yield "not.i1", LaneOperation("i1", ("i1",), lambda b, x: b.put(f"xor i1 {x}, true"), "r")
    yield "move.i1", LaneOperation("i1", ("i1",), lambda b, x: x, "r")
    yield "fill.i1", LaneOperation("i1", ("i1",), lambda b, x: x, "k")
    for narrow, wide in (("i16", "i32"), ("i32", "i64")):
        yield from _products(narrow, wide)
    yield (
        "mad.lo.i64",
        LaneOperation(
            "i64", ("i64",) * 3, lambda b, x, y, z: b.put(f"add i64 {b.put(f'mul i64 {x}, {y}')}, {z}"), "rcc"
        ),
    )
    for source, target in (("i32", "i64"), ("i16", "i32"), ("i16", "i64")):
        yield f"sext.{source}.{target}", _conversion("sext", source, target)
        yield f"zext.{source}.{target}", _conversion("zext", source, target)
    for source, target in (("i64", "i32"), ("i32", "i16"), ("i64", "i16")):
        yield f"trunc.{source}.{target}", _conversion("trunc", source, target)
    for instruction in ("sitofp", "uitofp"):
        for source in ("i32", "i64"):
            for target in ("float", "double"):
                yield f"{instruction}.{source}.{target}", _conversion(instruction, source, target)
    for kind in ("float", "double"):
        for opcode in ("add", "sub", "mul", "fma"):
            yield f"{opcode}.{kind}", _arithmetic(opcode, kind)
        for compare in FLOAT_COMPARISONS:
            yield f"setp.{compare}.{kind}", _comparison(f"fcmp {compare}", kind)
    yield "div.float", _arithmetic("div", "float")
    for opcode in ("min", "max"):
        yield f"{opcode}.float", _extremum(opcode)
    for name, flushes in (("ex2.float", False), ("ex2.ftz.float", True)):
        yield name, _exponential(flushes=flushes)
    for opcode in ("neg", "abs"):
        yield f"{opcode}.float", _sign(opcode)


OPERATIONS: dict[str, LaneOperation] = dict(_operations())
"""Every operation by name."""


def function_names() -> list[str]:
    """Every loop: an operation and a form of its sources."""
    return [f"{name}:{form}" for name, operation in OPERATIONS.items() for form in operation.forms()]


def assembly() -> str:
    """An LLVM module with a function for each of `function_names`, called so."""
    parts = [_function(name) for name in function_names()]
    return "\n".join([*parts, _METADATA])


_METADATA = """
!0 = distinct !{}
!1 = distinct !{!1, !2}
!2 = !{!"llvm.loop.parallel_accesses", !0}
"""
"""No lane depends on another one: loops may be vectorised without a look at the addresses."""


def _function(name: str) -> str:
    """The loop over lanes of an operation in one form."""
    plain, _, form = name.partition(":")
    operation = OPERATIONS[plain]
    kinds = (operation.result, *operation.sources)
    lines = [f'define void @"{name}"(ptr %record, i64 %first, i64 %count) {{', "enter:"]
    for number, kind in enumerate(kinds):
        lines.append(f"  %w{number} = getelementptr i64, ptr %record, i64 {OPERANDS + number}")
        if number == 0 or form[number - 1] == "r":
            lines.append(f"  %p{number} = load ptr, ptr %w{number}")
        elif kind == "i1":
            lines += [f"  %b{number} = load i8, ptr %w{number}", f"  %v{number} = icmp ne i8 %b{number}, 0"]
        else:
            lines.append(f"  %v{number} = load {kind}, ptr %w{number}")
    lines += [
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %enter ], [ %next, %loop ]",
        "  %lane = add nuw nsw i64 %first, %i",
    ]
    body = Body()
    names = [f"%v{number}" for number in range(len(kinds))]
    for number, kind in enumerate(kinds):
        if number == 0 or form[number - 1] == "c":
            continue
        stored = "i8" if kind == "i1" else kind
        place = body.put(f"getelementptr {stored}, ptr %p{number}, i64 %lane")
        names[number] = body.put(f"load {stored}, ptr {place}, !llvm.access.group !0")
        if kind == "i1":
            names[number] = body.put(f"trunc i8 {names[number]} to i1")
    result, stored = operation.emit(body, *names[1:]), operation.result
    if operation.result == "i1":
        result, stored = body.put(f"zext i1 {result} to i8"), "i8"
    place = body.put(f"getelementptr {stored}, ptr %p0, i64 %lane")
    body.lines.append(f"  store {stored} {result}, ptr {place}, !llvm.access.group !0")
    lines += [
        *body.lines,
        "  %next = add nuw nsw i64 %i, 1",
        "  %more = icmp ult i64 %next, %count",
        "  br i1 %more, label %loop, label %leave, !llvm.loop !1",
        "leave:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)
