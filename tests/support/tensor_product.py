"""One product through one tensor-core rung on the emulator, rows with gaps between them, against its reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from warptile.codegen.nvrtc import CompiledKernel, compile_ptx, compile_source
from warptile.codegen.translation_unit import Source, translation_unit
from warptile.dtypes import DTYPES, DType
from warptile.emulator import EmulationReport, emulate
from warptile.launch.access import Access, Rows
from warptile.planning.plan import make_plan
from warptile.problem import Operand, Problem, alignment_of
from warptile.ptx import parse
from warptile.rungs.tensor_tiles import elements_per_unit
from warptile.verify.reference import error_ratio, random_operand, reference

OUT = {name: name for name in ("float16", "bfloat16", "float64")} | dict.fromkeys(
    ("float8_e4m3", "float8_e5m2"), "bfloat16"
)
"""Types of C and D where they are not the accumulator's own."""


@dataclass(frozen=True)
class Result:
    """What came out: the largest error over its bound, whether gaps in D are as they were, and the counters."""

    error_ratio: float
    gaps_kept: bool
    report: EmulationReport


def storage(rows: int, leading: int, element: DType, generator: np.random.Generator) -> np.ndarray:
    """Random rows of ``leading`` elements; types narrower than a byte packed."""
    if element.bits >= 8:
        return random_operand((rows, leading), element, generator)
    return generator.integers(0, 256, (rows, leading * element.bits // 8), np.uint8)


def unpacked(stored: np.ndarray, element: DType) -> np.ndarray:
    """Stored rows as numbers: lowest bits first."""
    if element.bits >= 8:
        return stored
    shifts = np.arange(8 // element.bits) * element.bits
    values = (stored[..., None].astype(np.int64) >> shifts & (1 << element.bits) - 1).reshape(stored.shape[0], -1)
    return np.where(values >= 8, values - 16, values) if element.name == "int4" else values


@lru_cache(maxsize=256)
def compiled_once(source: Source, arch: str) -> CompiledKernel:
    """The kernel, the same one whenever a process asks: NVRTC does not always write the same instructions for the same
    source (a load more or less at the head of a block), which would show in counts that are compared between two
    runs."""
    return compile_source(source, arch)


@lru_cache(maxsize=256)
def ptx_once(source: Source, arch: str) -> tuple[str, bytes]:
    """Entry and PTX, for tests that do not ask what ptxas says."""
    kernel = compile_ptx(source, arch)
    return kernel.entry, kernel.ptx


parsed_once = lru_cache(maxsize=256)(parse)


def product(
    rung: str,
    m: int,
    n: int,
    k: int,
    *,
    dtype: str = "float16",
    accumulator: str | None = None,
    out: str | None = None,
    a_major: str = "row",
    b_major: str = "row",
    alpha: float = 1,
    beta: float = 0,
    with_c: bool | None = None,
    gap: int = 0,
    config: Mapping[str, int] | None = None,
    arch: str = "sm_90a",
    schedule: str = "latest",
) -> Result:
    """Run it. ``gap`` units follow each row of every matrix; those of floating-point operands are NaN, and so is all
    of C when beta is 0."""
    element = DTYPES[dtype]
    sums = DTYPES[accumulator or element.accumulators[0]]
    result = DTYPES[out or OUT.get(dtype, "int32" if sums.kind == "int" else "float32")]
    generator = np.random.default_rng([m, n, k])
    with_c = beta != 0 if with_c is None else with_c

    def matrix(rows: int, columns: int, of: DType, major: str = "row") -> tuple[Operand, np.ndarray]:
        lines, extent = (rows, columns) if major == "row" else (columns, rows)
        leading = extent + gap * max(1, 8 // of.bits)
        stored = storage(lines, leading, of, generator)
        if of.kind == "float":
            stored[:, extent:] = np.nan
        return Operand(of, major, leading, alignment_of(leading * of.bits // 8)), stored

    a_operand, a = matrix(m, k, element, a_major)
    b_operand, b = matrix(k, n, element, b_major)
    c_operand, c = matrix(m, n, result)
    d_operand, d = matrix(m, n, result)
    if beta == 0 and result.kind == "float":
        c[...] = np.nan
    problem = Problem(m, n, k, a_operand, b_operand, c_operand if with_c else None, d_operand, sums)
    plan = make_plan(problem, rung=rung, config=config, arch=arch)
    entry, ptx = ptx_once(translation_unit(plan.kernel), arch)
    before = d.copy()
    rows = Rows(m, n, result.bits // 8, d_operand.leading_dimension * result.bits // 8)
    report = emulate(
        parsed_once(ptx),
        plan.launch(entry, alpha, beta),
        {"A": a, "B": b, "D": d} | ({"C": c} if with_c else {}),
        accesses={"D": Access(writes=True, complete=rows)},
        arch=arch,
        schedule=schedule,
    )
    a_values = unpacked(a, element)[:m, :k] if a_major == "row" else unpacked(a, element)[:k, :m].T
    b_values = unpacked(b, element)[:k, :n] if b_major == "row" else unpacked(b, element)[:n, :k].T
    expected = reference(problem, a_values, b_values, c[:m, :n] if with_c else None, alpha=alpha, beta=beta)
    kept = before[:, n:].tobytes() == d[:, n:].tobytes()
    assert elements_per_unit(problem) == max(1, 8 // element.bits)
    return Result(error_ratio(d[:m, :n], expected), kept, report)
