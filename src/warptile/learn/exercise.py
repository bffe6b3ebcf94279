"""Exercises: a kernel with a hole or a planted bug, run on the emulator, and what it has to reach.

A file in ``exercises/`` holds both forms of a kernel ``gemm<0>(a, b, d, n, k)``: a line that ends in ``// HOLE`` is in
the exercise alone, one that ends in ``// ANSWER`` in the model answer alone. D = A B, with A [m, k] and B [k, n] (or
stored [n, k]) of f16, and D of f32. Operands are small integers, so D is exact whatever the order of additions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from warptile.codegen.nvrtc import ptx_alone
from warptile.codegen.translation_unit import Source
from warptile.emulator import EmulationReport, emulate
from warptile.errors import ArgumentError, CompileError, EmulationError, WarptileError
from warptile.launch.access import Access, Rows
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

FOLDER = Path(__file__).resolve().parent / "exercises"
ARCH = "sm_90a"
HOLE, ANSWER = "HOLE", "ANSWER"
_MARK = re.compile(rf"\s*// ({HOLE}|{ANSWER})$")
_OPERAND = r"(?:\{[^}]*\}|\[[^\]]*\]|%[\w.]+|-?\d+)"
_OPERANDS = re.compile(rf"\b([a-z]\w*\.[\w.:]+) {_OPERAND}(?:, {_OPERAND})*")
_COMPILER_ERROR = re.compile(r"^kernel\.cu\((\d+)\): (?:catastrophic )?error: (.*)$", re.M)
MOST_ERRORS = 5
"""Errors of the compiler that are told: those behind often follow from the first."""

_NAMED = re.compile(r"^// warptile exercise: ([\w-]+)", re.M)


@dataclass(frozen=True)
class Gate:
    """What a counter has to reach.

    Attributes:
        counter: of the emulator's report.
        says: the condition in words, such as ``"1.00: no bank conflict"``.
        holds: the condition.
    """

    counter: str
    says: str
    holds: Callable[[float], bool]


@dataclass(frozen=True)
class Exercise:
    """An exercise.

    Attributes:
        name: of its file.
        lesson: number of the lesson that it belongs to.
        title: in a few words.
        task: what is to be done, in a sentence or two.
        size: M, N and K of the problem that is run.
        tile: rows and columns of D that a CTA computes.
        threads: of a CTA.
        gates: on counters.
        hints: three, each of which says more than the one before.
        b_transposed: B is stored [n, k].
        values: the smallest and the largest element of A and B.
        sparse: at most two of each four neighbours along K of A are not zero.
    """

    name: str
    lesson: int
    title: str
    task: str
    size: tuple[int, int, int]
    tile: tuple[int, int]
    threads: int
    gates: tuple[Gate, ...]
    hints: tuple[str, str, str]
    b_transposed: bool = False
    values: tuple[int, int] = (-4, 4)
    sparse: bool = False

    def text(self, form: str = HOLE) -> str:
        """The kernel with its hole or bug, or the model answer."""
        found = [f"// warptile exercise: {self.name}. {self.title}", "// Check it: warptile learn check FILE"]
        for line in (FOLDER / f"{self.name}.cu").read_text("utf-8").splitlines():
            mark = _MARK.search(line)
            if mark is None or mark[1] == form:
                found.append(_MARK.sub("", line))
        return "\n".join(found) + "\n"


@dataclass(frozen=True)
class CheckOutcome:
    """What came of a file.

    Attributes:
        exercise: that it is of.
        passed: whether everything holds.
        error: what stopped it, or nothing.
        where: file and line that the error names, or nothing.
        wrong: what is wrong with D, or nothing.
        gates: each with the counter's value and whether it holds.
        lines: the lines of the file with bank conflicts: number, wavefronts over the ideal.
    """

    exercise: Exercise
    passed: bool
    error: str = ""
    where: str = ""
    wrong: str = ""
    gates: tuple[tuple[Gate, float, bool], ...] = ()
    lines: tuple[tuple[int, float], ...] = ()


def named(name: str) -> Exercise:
    """The exercise of a name.

    Raises:
        ArgumentError: there is none; the message lists them.
    """
    from warptile.learn.exercise_list import EXERCISES

    if name not in EXERCISES:
        raise ArgumentError(f"exercise: got {name!r}; there are {', '.join(EXERCISES)}, such as swizzle")
    return EXERCISES[name]


def exercise_of(text: str) -> Exercise:
    """The exercise that a file says it is of.

    Raises:
        ArgumentError: it says none.
    """
    found = _NAMED.search(text)
    if found is None:
        raise ArgumentError(
            "the file has no line like '// warptile exercise: swizzle'; begin with one of ours: "
            "warptile learn start swizzle"
        )
    return named(found[1])


@lru_cache(maxsize=32)
def _compiled(text: str) -> tuple[str, bytes]:
    return ptx_alone(Source(text, "gemm<0>"), ARCH)


def check(text: str, schedule: str = "latest") -> CheckOutcome:
    """Compile a kernel, run it on the emulator with all checks, and compare D and the counters with what is asked.

    Args:
        text: of the file.
        schedule: of asynchronous copies, as `warptile.emulator.emulate` takes it.

    Raises:
        ArgumentError: it is of no exercise.
    """
    of = exercise_of(text)
    m, n, k = of.size
    random = np.random.default_rng(len(of.name))
    low, high = of.values
    a, b = (random.integers(low, high + 1, extents).astype(np.float16) for extents in ((m, k), (k, n)))
    if of.sparse:
        a *= random.permuted(np.tile(np.array([0, 0, 1, 1], np.float16), (m * k // 4, 1)), axis=1).reshape(m, k)
    d = np.zeros((m, n), np.float32)
    stored = np.ascontiguousarray(b.T) if of.b_transposed else b
    try:
        entry, ptx = _compiled(text)
        arguments = (Pointer("A"), Pointer("B"), Pointer("D"), Scalar("s32", n), Scalar("s32", k))
        spec = LaunchSpec(entry, (n // of.tile[1], m // of.tile[0], 1), (of.threads, 1, 1), arguments)
        access = {"D": Access(writes=True, complete=Rows(m, n, 4, 4 * n))}
        report = emulate(parse(ptx), spec, {"A": a, "B": stored, "D": d}, accesses=access, arch=ARCH, schedule=schedule)
    except CompileError as error:
        return _not_compiled(of, error)
    except EmulationError as error:
        return CheckOutcome(of, False, f"{type(error).__name__}: {_plain(str(error))}", _place(error))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    wrong = _difference(d, expected)
    gates = tuple((gate, report.counters[gate.counter], gate.holds(report.counters[gate.counter])) for gate in of.gates)
    passed = not wrong and all(holds for *_, holds in gates)
    return CheckOutcome(of, passed, wrong=wrong, gates=gates, lines=_conflicts(report))


def _not_compiled(of: Exercise, error: CompileError) -> CheckOutcome:
    """What is said of a file that the compiler refuses: its errors, by the lines of the file."""
    found = _COMPILER_ERROR.findall(error.log)
    if not found:
        return CheckOutcome(of, False, f"it does not compile: {error.log.strip() or error}")
    more = "".join(f"\nline {line}: {text}" for line, text in found[1:MOST_ERRORS])
    return CheckOutcome(of, False, f"it does not compile: {found[0][1]}{more}", f"line {found[0][0]}")


def _difference(d: NDArray[np.float32], expected: NDArray[np.float64]) -> str:
    equal = d == expected
    if equal.all():
        return ""
    row, column = (int(each) for each in np.argwhere(~equal)[0])
    return (
        f"{np.count_nonzero(~equal)} of {d.size} elements of D are wrong; the first is D[{row}, {column}]: "
        f"{d[row, column]:g} instead of {expected[row, column]:g}"
    )


def _conflicts(report: EmulationReport) -> tuple[tuple[int, float], ...]:
    found: dict[int, tuple[float, float]] = {}
    for each in report.lines:
        place = each.location
        own = [(place.file, place.line), *place.callers]
        lines = [line for file, line in own if file == "kernel.cu" and line is not None]
        kinds = ("load", "store")
        wavefronts = sum(each.counters[f"shared_{kind}_wavefronts"] for kind in kinds)
        ideal = sum(each.counters[f"shared_{kind}_wavefronts_ideal"] for kind in kinds)
        if lines and ideal:
            before = found.get(lines[-1], (0.0, 0.0))
            found[lines[-1]] = before[0] + wavefronts, before[1] + ideal
    return tuple(
        (line, wavefronts / ideal) for line, (wavefronts, ideal) in sorted(found.items()) if wavefronts > ideal
    )


def _place(error: WarptileError) -> str:
    location = getattr(error, "location", None)
    if location is None:
        return ""
    own = [(location.file, location.line), *location.callers]
    lines = [line for file, line in own if file == "kernel.cu" and line is not None]
    return f"line {lines[-1]}" if lines else ""


def _plain(message: str) -> str:
    """A message without positions in the PTX and operands of its instructions."""
    shorter = _OPERANDS.sub(r"\1", re.sub(r" \[in \w+.*\]$", "", message, flags=re.S))
    return re.sub(r" \(PTX line \d+\)", "", shorter)
