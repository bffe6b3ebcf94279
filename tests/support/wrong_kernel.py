"""Compile a kernel of tests/wrong_kernels, with its planted bug or corrected, emulate it and check D."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

import warptile
from warptile.arrays.array_view import numpy_dtype
from warptile.codegen.nvrtc import VIRTUAL_FOLDER, CompiledKernel, compile_ptx, compile_source
from warptile.codegen.translation_unit import Source
from warptile.dtypes import DTYPES
from warptile.emulator import emulate
from warptile.launch.access import Access, Rows
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import Argument, LaunchSpec
from warptile.launch.tensor_map import TensorMap
from warptile.problem import Problem
from warptile.ptx import parse
from warptile.ptx.instruction import PtxModule
from warptile.verify.reference import reference

FOLDER = Path(__file__).parents[1] / "wrong_kernels"
HEADERS = Path(warptile.__file__).parent / "kernels"
ARCH = "sm_90a"
OPTIONS = (f"-I{FOLDER}", f"-I{HEADERS}")
MAP_TYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}
_HEADER = re.compile(r"^// (Bug|On a GPU|Fix): (.*(?:\n// (?!On a GPU: |Fix: ).*)*)", re.M)
_MAP = re.compile(r"(\w+)@(\d+)x(\d+)(?:/(\w+))?")
_OWN_HEADER = re.compile(r'#include "(\w+\.h)"')
_REPORTED = re.compile(r"//.*\bREPORTED: (.*)$")


class WrongResult(AssertionError):
    """A kernel ran to its end without a report, and D is not A B."""


@lru_cache(maxsize=256)
def compiled(source: Source) -> CompiledKernel:
    """A kernel of tests/wrong_kernels, compiled."""
    return compile_source(source, ARCH, options=OPTIONS, cache=None)


@lru_cache(maxsize=256)
def _module(source: Source) -> tuple[str, PtxModule]:
    """Entry and PTX of a kernel of tests/wrong_kernels, without running ptxas. The cache of kernels follows includes of
    the package and of CUDA alone: its own headers become part of the text."""
    kernel = compile_ptx(replace(source, text=_with_own_headers(source.text)), ARCH)
    return kernel.entry, parse(kernel.ptx)


def _with_own_headers(text: str) -> str:
    """The text with the headers of tests/wrong_kernels in the places of their includes."""
    written = []
    for number, line in enumerate(text.splitlines(), 1):
        found = _OWN_HEADER.fullmatch(line)
        if found is None:
            written.append(line)
        else:
            header = (FOLDER / found[1]).read_text()
            written += [_named(found[1], 1), header, _named("kernel.cu", number + 1)]
    return "\n".join(written)


def _named(file: str, line: int) -> str:
    """The directive that says from where the next line is."""
    return f'#line {line} "{VIRTUAL_FOLDER}/{file}"'


def tensor_map(text: str, arrays: Mapping[str, np.ndarray]) -> TensorMap | None:
    """The tensor map that ``text`` describes, as in `Case.parameters`; None if it describes none."""
    found = _MAP.fullmatch(text)
    if found is None:
        return None
    name, width, height, swizzle = found.groups()
    rows, columns = arrays[name].shape
    return TensorMap(
        name, MAP_TYPES[arrays[name].dtype.name], (columns, rows), (arrays[name].strides[0],),
        (int(width), int(height)), swizzle=swizzle or "128B",
    )  # fmt: skip


@lru_cache(maxsize=64)
def matrices(size: tuple[int, int, int], element: str, scale: float, pad: int) -> tuple[np.ndarray, ...]:
    """A (its rows padded by ``pad`` elements, half of them on each side), B [K, N], and the error bound of D."""
    m, n, k = size
    random = np.random.default_rng([m, n, k])
    storage = numpy_dtype(DTYPES[element])
    a = (scale * random.standard_normal((m, k + pad))).astype(storage)
    b = (scale * random.standard_normal((k, n))).astype(storage)
    problem = Problem.dense(m, n, k, DTYPES[element], out=DTYPES["float32"], accumulator=DTYPES["float32"])
    return a, b, reference(problem, a[:, pad // 2 : pad // 2 + k], b).bound


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel and its operands; D must equal ``a @ b`` within ``bound``."""

    spec: LaunchSpec
    operands: dict[str, np.ndarray]
    a: np.ndarray
    b: np.ndarray
    bound: np.ndarray

    def check(self, d: np.ndarray) -> None:
        """Raise WrongResult if ``d`` is not the result."""
        check_result(d, self.a, self.b, self.bound)


@dataclass(frozen=True)
class Case:
    """One kernel ``gemm<CORRECT>``, how it is launched, and how its bug must be reported.

    Attributes:
        name: its file without the suffix.
        error: the class of the error.
        message: what its message must match.
        size: m, n, k.
        tile: rows and columns of D that a CTA computes.
        threads: threads of a CTA.
        element: type of A and B.
        parameters: the kernel's parameters; ``A+4`` points 4 elements into A, whose rows are 8 longer; ``0`` is a null
            pointer; ``A@64x32`` is a tensor map of A with boxes of 32 rows of 64 elements under the swizzle of 128
            bytes, ``A@64x32/none`` one under none; ``WRONG|RIGHT`` differs between the twins.
        b_major: ``"col"`` when B is stored [N, K].
        splits: CTAs along z.
        scale: factor of the operands.
        shared: bytes of dynamic shared memory, with the bug and corrected.
        overlaps_previous: as `LaunchSpec.overlaps_previous`.
        otherwise: errors that other schedules than the default may report instead.
    """

    name: str
    error: type[Exception]
    message: str
    size: tuple[int, int, int]
    tile: tuple[int, int]
    threads: int
    element: str = "float16"
    parameters: str = "A B D m n k"
    b_major: str = "row"
    splits: int = 1
    scale: float = 1.0
    shared: tuple[int, int] = (0, 0)
    overlaps_previous: bool = False
    otherwise: tuple[type[Exception], ...] = ()
    text: str = field(init=False, repr=False, compare=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", (FOLDER / f"{self.name}.cu").read_text())

    @cached_property
    def header(self) -> dict[str, str]:
        """The first comment of the file: ``Bug``, ``On a GPU`` and ``Fix``."""
        return {key: re.sub(r"\s*\n// ", " ", text).strip() for key, text in _HEADER.findall(self.text)}

    @cached_property
    def reported_lines(self) -> dict[str, list[int]]:
        """Lines that end in ``REPORTED: role``, by role: the report names one of each role."""
        roles: dict[str, list[int]] = {}
        for number, line in enumerate(self.text.splitlines(), 1):
            found = _REPORTED.search(line)
            if found:
                roles.setdefault(found[1].strip(), []).append(number)
        return roles

    def run(self, schedule: str = "latest", *, correct: bool) -> None:
        """Emulate the kernel with its bug, or its corrected twin.

        Raises:
            EmulationError: the emulator reports a bug.
            WrongResult: it reports none, but D is wrong.
        """
        entry, module = _module(self.source(correct))
        launch = self.launch(entry, correct)
        d = launch.operands["D"]
        access = {"D": Access(writes=True, complete=Rows(*d.shape, d.itemsize, d.strides[0]))}
        report = emulate(module, launch.spec, launch.operands, accesses=access, arch=ARCH, schedule=schedule)
        assert report.unfinished_copies == 0
        launch.check(d)

    def source(self, correct: bool) -> Source:
        """The kernel with its bug, or its corrected twin."""
        return Source(self.text, f"gemm<{str(correct).lower()}>", may_serialise=not correct)

    def launch(self, entry: str, correct: bool) -> Launch:
        """The launch of the compiled kernel ``entry``, with new operands."""
        m, n, k = self.size
        pad = 8 if "A+" in self.parameters else 0
        a, b, bound = matrices(self.size, self.element, self.scale, pad)
        d = np.zeros((m, n), np.float32)
        stored_b = np.ascontiguousarray(b.T) if self.b_major == "col" else b
        values = {"m": m, "n": n, "k": k, "lda": k + pad, "beta": 0.0}
        operands = {"A": a, "B": stored_b, "D": d}
        arguments: list[Argument] = []
        for both in self.parameters.split():
            parameter = both.split("|")[-1 if correct else 0]
            name, _, offset = parameter.partition("+")
            described = tensor_map(parameter, operands)
            if described is not None:
                arguments.append(described)
            elif parameter in values:
                arguments.append(Scalar("f32" if parameter == "beta" else "s32", values[parameter]))
            else:
                arguments.append(Pointer(None if name == "0" else name, a.itemsize * int(offset or 0)))
        grid = (-(-n // self.tile[1]), -(-m // self.tile[0]), self.splits)
        spec = LaunchSpec(
            entry, grid, (self.threads, 1, 1), tuple(arguments), dynamic_shared_bytes=self.shared[correct],
            overlaps_previous=self.overlaps_previous,
        )  # fmt: skip
        inside = a[:, pad // 2 : pad // 2 + k]
        return Launch(spec, operands, inside.astype(np.float64), b.astype(np.float64), bound)


def check_result(d: np.ndarray, a: np.ndarray, b: np.ndarray, bound: np.ndarray) -> None:
    """Raise WrongResult, saying which elements are wrong and, if D is another product, which one."""
    expected = a @ b
    wrong = ~(np.abs(d - expected) <= bound)
    if not wrong.any():
        return
    row, column = (int(index[0]) for index in np.nonzero(wrong))
    message = (
        f"D[{row}, {column}] is {d[row, column]:g} and should be {expected[row, column]:g}; "
        f"{wrong.sum()} of {wrong.size} elements are wrong"
    )
    for what, axis in (("rows", 1), ("columns", 0)):
        right = np.flatnonzero(~wrong.any(axis=axis))
        message += f"; {what} {_runs(right)} are right" if right.size else ""
    for what, (other_a, other_b) in _others(a, b).items():
        if (np.abs(d - other_a @ other_b) <= bound).all():
            message += f": this is the product with {what}"
    raise WrongResult(message)


def _runs(numbers: np.ndarray) -> str:
    """Numbers in order, consecutive ones as ``first to last``."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def _others(a: np.ndarray, b: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Operands that a kernel with a common indexing bug multiplies instead."""
    (m, k), n = a.shape, b.shape[1]
    found = {
        "A read in the other major order": (a.T.reshape(m, k), b),
        "B read in the other major order": (a, b.T.reshape(k, n)),
    }
    if not (m % 16 or n % 16 or k % 16):
        blocks_b = b.reshape(k // 8, 8, n // 8, 8).swapaxes(1, 3).reshape(k, n)
        quarters_a = a.reshape(m // 16, 2, 8, k // 16, 2, 8).swapaxes(1, 4).reshape(m, k)
        found["each 8 x 8 block of B transposed"] = (a, blocks_b)
        found["two quarters of each 16 x 16 block of A exchanged"] = (quarters_a, b)
    return found
