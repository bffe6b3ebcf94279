"""Run one rung on one problem on the emulator, with strides, guard columns and a reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warptile.arrays.array_view import numpy_dtype
from warptile.dtypes import DType, dtype
from warptile.emulator import EmulationReport
from warptile.planning.plan import Plan, make_plan
from warptile.problem import Operand, Problem, alignment_of
from warptile.runtime.execute import EmulatorBackend, compiled_ptx
from warptile.verify.reference import error_ratio, random_operand, reference

GUARD = 9


@dataclass(frozen=True)
class Result:
    """What one emulated product gave."""

    ratio: float
    guards_intact: bool
    report: EmulationReport
    plan: Plan

    @property
    def correct(self) -> bool:
        return self.ratio <= 1 and self.guards_intact


def problem(
    m: int,
    n: int,
    k: int,
    element: str,
    *,
    b_major: str = "row",
    out: str | None = None,
    accumulator: str | None = None,
    gap: int = 0,
    with_c: bool = False,
) -> Problem:
    """A problem whose matrices have ``gap`` unused elements after each row."""
    kind = dtype(element)
    sum_type = dtype(accumulator or kind.accumulators[0])
    out_type = dtype(out or sum_type.name)

    def operand(each: DType, columns: int, major: str = "row") -> Operand:
        leading = max(columns, 1) + gap
        return Operand(each, major, leading, alignment_of(leading * each.bits // 8))

    b = operand(kind, n) if b_major == "row" else operand(kind, k, "col")
    c = operand(out_type, n) if with_c else None
    return Problem(m, n, k, operand(kind, k), b, c, operand(out_type, n), sum_type)


def run(
    given: Problem,
    rung: str,
    *,
    config: dict[str, int] | None = None,
    alpha: float = 1,
    beta: float = 0,
    arch: str = "sm_90a",
    nan_c: bool = False,
    schedule: str = "latest",
    seed: int = 1,
) -> Result:
    """Emulate ``rung`` on random data."""
    generator = np.random.default_rng(seed)
    plan = make_plan(given, rung=rung, config=config, arch=arch)

    def matrix(operand: Operand, rows: int) -> np.ndarray:
        return random_operand((max(rows, 1), operand.leading_dimension), operand.dtype, generator)

    a = matrix(given.a, given.m)
    b = matrix(given.b, given.k if given.b.major == "row" else given.n)
    d = np.full((given.m, given.d.leading_dimension), GUARD, numpy_dtype(given.d.dtype))
    buffers = {"A": a, "B": b, "D": d}
    c = None
    if given.c is not None:
        c = matrix(given.c, given.m)
        if nan_c:
            c[...] = np.nan
        buffers["C"] = c
    as_bytes = {name: array.view(np.uint8).reshape(-1) for name, array in buffers.items()}
    backend = EmulatorBackend(arch, schedule)
    report = backend.emulate(plan, compiled_ptx(plan), as_bytes, alpha, beta)
    b_matrix = b[: given.k, : given.n] if given.b.major == "row" else b[: given.n, : given.k].T
    expected = reference(
        given, a[:, : given.k], b_matrix, None if c is None else c[:, : given.n], alpha=alpha, beta=beta
    )
    guards = d[:-1, given.n :] if given.m else d[:, given.n :]
    return Result(error_ratio(d[:, : given.n], expected), bool(np.all(guards == GUARD)), report, plan)
