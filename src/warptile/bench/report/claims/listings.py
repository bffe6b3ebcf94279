"""Three listings that are wrong as printed: kernels of our own with the same flaw, run on the emulator.

A file in ``flawed/`` holds all forms of a kernel: a line that ends in ``// AS PRINTED``, ``// MENDED`` or ``//
WITHOUT`` belongs to that form alone. The lines of a form are what is compiled, so the lines that the emulator reports
are those that the document shows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from warptile.codegen.nvrtc import ptx_alone
from warptile.codegen.translation_unit import Source
from warptile.emulator import EmulationReport, emulate
from warptile.errors import EmulationError, SourceLocation
from warptile.launch.access import Access, Rows
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

FOLDER = Path(__file__).parent / "flawed"
ARCH = "sm_90a"
PRINTED, MENDED, WITHOUT = "AS PRINTED", "MENDED", "WITHOUT"
_MARK = re.compile(rf"\s*// ({PRINTED}|{MENDED}|{WITHOUT})$")
_MAIN = "kernel.cu"
_PTX_LINE = re.compile(r" \(PTX line \d+\)")
_INSTRUCTION = re.compile(r"^[a-z][\w.:]*\.[^:]*?\], %\w+: ")
_WHERE = re.compile(r" \[in \w+.*\]$", re.S)


@dataclass(frozen=True)
class Line:
    """One line of a form: its number, its text, and whether only this form has it."""

    number: int
    text: str
    own: bool


@dataclass(frozen=True)
class Listing:
    """A kernel ``gemm<ARGUMENT>(a, b, d, n, k)`` with a published flaw.

    Attributes:
        name: its file without the suffix.
        size: M, N, K of the problem that is run.
        tile: rows and columns of D that a CTA computes.
        threads: of a CTA.
        b_transposed: B is stored [N, K].
    """

    name: str
    size: tuple[int, int, int]
    tile: tuple[int, int]
    threads: int
    b_transposed: bool = False

    def lines(self, form: str) -> tuple[Line, ...]:
        """The lines of a form."""
        found: list[Line] = []
        for text in (FOLDER / f"{self.name}.cu").read_text("utf-8").splitlines():
            mark = _MARK.search(text)
            if mark is None or mark[1] == form:
                found.append(Line(len(found) + 1, _MARK.sub("", text), mark is not None))
        return tuple(found)


@dataclass(frozen=True)
class Run:
    """What came of a form.

    Attributes:
        error: class of the error that the emulator reported; empty for none.
        said: its message, without registers and PTX lines.
        at: the line of the kernel that it names; None where it names none.
        since: the line of the kernel at which what it reports began, such as the start of a copy.
        right: D is A B, exactly: the operands are small integers.
        report: counters; None after an error.
    """

    error: str
    said: str
    at: int | None
    since: int | None
    right: bool
    report: EmulationReport | None


HALF_OF_BLOCK = Listing("half_of_block", (128, 128, 32), (128, 128), 256)
COMMIT_WITH_TILE = Listing("commit_with_tile", (32, 16, 64), (32, 16), 64)
TWO_BIT_SWIZZLE = Listing("two_bit_swizzle", (32, 16, 128), (16, 8), 32, b_transposed=True)
LISTINGS = (HALF_OF_BLOCK, COMMIT_WITH_TILE, TWO_BIT_SWIZZLE)


@cache
def run(listing: Listing, form: str, argument: int = 0) -> Run:
    """Compile and emulate one form of a listing, instantiated with ``argument``."""
    text = "\n".join(line.text for line in listing.lines(form)) + "\n"
    entry, ptx = ptx_alone(Source(text, f"gemm<{argument}>"), ARCH)
    m, n, k = listing.size
    a, b = _integers(m, k, 1), _integers(k, n, 2)
    stored = np.ascontiguousarray(b.T) if listing.b_transposed else b
    d = np.zeros((m, n), np.float32)
    grid = (n // listing.tile[1], m // listing.tile[0], 1)
    arguments = (Pointer("A"), Pointer("B"), Pointer("D"), Scalar("s32", n), Scalar("s32", k))
    spec = LaunchSpec(entry, grid, (listing.threads, 1, 1), arguments)
    access = {"D": Access(writes=True, complete=Rows(m, n, 4, 4 * n))}
    try:
        report = emulate(parse(ptx), spec, {"A": a, "B": stored, "D": d}, accesses=access, arch=ARCH)
    except EmulationError as error:
        said = _plain(str(error))
        since = re.search(rf"started at [^\n\[]*\b{_MAIN}:(\d+)", said)
        return Run(type(error).__name__, said, _line_of(error.location), int(since[1]) if since else None, False, None)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    return Run("", "", None, None, bool(np.array_equal(d, expected)), report)


def _integers(rows: int, columns: int, seed: int) -> NDArray[np.float16]:
    """Integers from -4 to 4, of which any product here is exact in f32."""
    return np.random.default_rng(seed).integers(-4, 5, (rows, columns)).astype(np.float16)


def _line_of(location: SourceLocation | None) -> int | None:
    """The line of ``gemm`` itself at a location that may be in a function that it calls."""
    if location is None:
        return None
    places = [(location.file, location.line), *location.callers]
    lines = [line for file, line in places if file == _MAIN and line is not None]
    return lines[-1] if lines else None


def _plain(message: str) -> str:
    """An emulator's message without the instruction with its registers, PTX lines and the kernel's name."""
    return _WHERE.sub("", _PTX_LINE.sub("", _INSTRUCTION.sub("", message)))


def shared_wavefronts(run: Run) -> dict[int, tuple[str, float, float]]:
    """By line of the kernel that accesses shared memory: what it does, its wavefronts, and how many would do."""
    found: dict[int, tuple[str, float, float]] = {}
    assert run.report is not None, run.said
    for each in run.report.lines:
        for kind in ("store", "load"):
            wavefronts = each.counters[f"shared_{kind}_wavefronts"]
            line = _line_of(each.location)
            if wavefronts and line is not None:
                found[line] = (kind, wavefronts, each.counters[f"shared_{kind}_wavefronts_ideal"])
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class GroupStep:
    """One iteration of a pipeline of ``cp.async``.

    Attributes:
        tile: that is computed, and whose group has to be complete.
        committed: groups committed by then.
        complete: of these, what the wait leaves complete for certain.
    """

    tile: int
    committed: int
    complete: int

    @property
    def covered(self) -> bool:
        """Whether the tile's group is among the complete ones."""
        return self.tile < self.complete


def group_steps(tiles: int, stages: int, *, empty_groups: bool) -> tuple[GroupStep, ...]:
    """The groups of a pipeline that prefetches, then waits for all but ``stages - 1`` groups, then computes.

    Args:
        tiles: of K.
        stages: of the ring; the prologue fills all but one.
        empty_groups: a group is committed in every iteration; otherwise only where there is a tile to copy.
    """
    committed, found = stages - 1, []
    for tile in range(tiles):
        committed += empty_groups or tile + stages - 1 < tiles
        found.append(GroupStep(tile, committed, max(0, committed - (stages - 1))))
    return tuple(found)
