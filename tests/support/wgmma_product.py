"""One product through one rung of the wgmma family on the emulator, with its copies and workspaces: operands between
guard bands, at any alignment, against its reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tensor_product import OUT, parsed_once, ptx_once, storage, unpacked
from warptile.codegen.translation_unit import translation_unit
from warptile.device import REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES, DType
from warptile.emulator import EmulationReport, emulate
from warptile.launch.access import NOTHING, Access, Rows
from warptile.launch.params import Params, Pointer
from warptile.launch.spec import LaunchSpec
from warptile.launch.tensor_map import TensorMap
from warptile.planning.plan import Plan, make_plan
from warptile.problem import Operand, Problem, alignment_of
from warptile.rungs import rung as rung_named
from warptile.rungs.kernel_spec import Config
from warptile.runtime.execute import copy_launches
from warptile.verify.reference import error_ratio, reference

ARCH = "sm_90a"
GUARD_UNITS = 64
"""Units of every matrix's memory behind its last line."""

SMALL = {
    "BM": 128, "BN": 64, "STAGES": 3, "GROUP": 8, "SMS": 3, "CONSUMERS": 2, "PINGPONG": 0, "CM": 1, "CN": 1,
    "ALONG_N": 0, "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": 0,
}  # fmt: skip


def small(name: str, dtype: str = "float16", **changes: int) -> Config:
    """A rung's configuration with small tiles and few blocks, quick to emulate."""
    element = DTYPES[dtype]
    sums = DTYPES[element.accumulators[0]]
    out = DTYPES["int32" if sums.kind == "int" else "float32"]
    problem = Problem.dense(256, 256, 256, element, out=out, accumulator=sums, b_major="col")
    usual = rung_named(name).default_config(problem)
    values = {**SMALL, "BK": 1024 // element.bits}
    return {**{key: values.get(key, value) for key, value in usual.items()}, **changes}


@dataclass(frozen=True)
class Result:
    """What came out.

    Attributes:
        error_ratio: largest error over its bound.
        guards_kept: nothing of D's memory was written but D.
        d: rows of D.
        report: of the product's own launch.
        plan: what ran.
    """

    error_ratio: float
    guards_kept: bool
    d: np.ndarray
    report: EmulationReport
    plan: Plan


@dataclass(frozen=True)
class _Matrix:
    """A matrix in memory of its own: how it lies, all of its units, and its own rows and columns of them."""

    operand: Operand
    memory: np.ndarray
    values: np.ndarray
    rows: Rows


def matrix(
    rows: int, columns: int, of: DType, major: str, gap: int, offset: int, generator: np.random.Generator
) -> _Matrix:
    """Random numbers; whatever lies around them is NaN in floating-point types. ``gap`` and ``offset`` count units:
    elements, or bytes of several."""
    lines, extent = (rows, columns) if major == "row" else (columns, rows)
    packed = max(1, 8 // of.bits)
    pitch = -(-max(extent, 1) // packed) + gap
    drawn = storage(1, (offset + lines * pitch + GUARD_UNITS) * packed, of, generator)[0]
    inside = np.zeros(drawn.shape, bool)
    own = slice(offset, offset + lines * pitch)
    inside[own].reshape(lines, pitch)[:, : extent // packed] = True
    if of.kind == "float":
        drawn[~inside] = np.nan
    unit_bytes = drawn.itemsize
    operand = Operand(of, major, pitch * packed, alignment_of(offset * unit_bytes, pitch * unit_bytes))
    values = unpacked(drawn[own].reshape(lines, pitch), of)[:, :extent]
    where = Rows(lines, extent // packed, unit_bytes, pitch * unit_bytes, offset * unit_bytes)
    return _Matrix(operand, drawn, values if major == "row" else values.T, where)


def _moved(spec: LaunchSpec, matrices: Mapping[str, _Matrix]) -> LaunchSpec:
    """The launch with every matrix where it lies in its memory."""

    def moved(argument: object) -> object:
        if isinstance(argument, Params):
            return Params(tuple((name, moved(field)) for name, field in argument.members))  # type: ignore[misc]
        if isinstance(argument, Pointer | TensorMap) and argument.operand in matrices:
            offset = argument.offset_bytes + matrices[argument.operand].rows.offset_bytes
            return replace(argument, offset_bytes=offset)
        return argument

    return replace(spec, arguments=tuple(map(moved, spec.arguments)))  # type: ignore[arg-type]


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
    offset: int = 0,
    config: Config | None = None,
    schedule: str = "latest",
    kernel: tuple[str, bytes] | None = None,
    device: DeviceLimits = REFERENCE,
) -> Result:
    """Run it. ``gap`` units follow each line of every matrix and ``offset`` lie before the first; C is NaN where beta
    is 0. ``kernel`` is the entry and PTX where they are there already.

    Raises:
        AssertionError: a workspace that has to be left zero is not.
    """
    element = DTYPES[dtype]
    sums = DTYPES[accumulator or element.accumulators[0]]
    result = DTYPES[out or OUT.get(dtype, "int32" if sums.kind == "int" else "float32")]
    generator = np.random.default_rng([m, n, k])
    with_c = beta != 0 if with_c is None else with_c
    matrices = {
        "A": matrix(m, k, element, a_major, gap, offset, generator),
        "B": matrix(k, n, element, b_major, gap, offset, generator),
        "D": matrix(m, n, result, "row", gap, offset, generator),
    }
    if with_c:
        matrices["C"] = matrix(m, n, result, "row", gap, offset, generator)
    if with_c and beta == 0 and result.kind == "float":
        matrices["C"].memory[...] = np.nan
    a, b, c, d = matrices["A"], matrices["B"], matrices.get("C"), matrices["D"]
    problem = Problem(m, n, k, a.operand, b.operand, c.operand if c else None, d.operand, sums)
    plan = make_plan(problem, rung=rung, config=config or small(rung, dtype), device=device)
    entry, ptx = kernel or ptx_once(translation_unit(plan.kernel), ARCH)

    before, rows = d.memory.copy(), d.rows
    buffers = {name: each.memory for name, each in matrices.items()}
    buffers |= {each.name: np.zeros(each.bytes, np.uint8) for each in plan.kernel.workspaces}
    accesses = {"D": Access(writes=True, complete=rows)}
    for copying, spec in copy_launches(plan):
        written = {
            each.target: Access(writes=True, complete=each.written, holds=NOTHING) for each in plan.kernel.copies
        }
        module, moved = parsed_once(copying.ptx), _moved(spec, matrices)
        emulate(module, moved, buffers, accesses=written, arch=ARCH, schedule=schedule)
        accesses |= {each.target: Access(holds=each.written) for each in plan.kernel.copies}
    accesses |= {
        each.target: Access(writes=True, complete=each.written, holds=NOTHING)
        for each in plan.kernel.view.fused_repacks
    }
    asked = plan.kernel.kernel_workspaces
    accesses |= {each.name: Access(writes=True, holds=None if each.zero else NOTHING) for each in asked}
    spec = _moved(plan.launch(entry, alpha, beta), matrices)
    report = emulate(parsed_once(ptx), spec, buffers, accesses=accesses, arch=ARCH, schedule=schedule)
    assert not any(buffers[each.name].any() for each in asked if each.zero)

    expected = reference(problem, a.values, b.values, c.values if c else None, alpha=alpha, beta=beta)
    outside = np.ones(before.shape, bool)
    pitch = d.operand.leading_dimension
    outside[offset : offset + m * pitch].reshape(m, pitch)[:, :n] = False
    kept = before[outside].tobytes() == d.memory[outside].tobytes()
    return Result(error_ratio(d.values, expected), kept, d.values, report, plan)


def ok(*args: object, **kwargs: object) -> Result:
    """As `product`, which is right, writes nothing else and leaves nothing under way."""
    result = product(*args, **kwargs)  # type: ignore[arg-type]
    assert result.error_ratio <= 1
    assert result.guards_kept
    assert result.report.unfinished_copies == 0
    return result


def problem(
    dtype: str = "float16",
    size: tuple[int, int, int] = (4096, 4096, 4096),
    a_major: str = "row",
    b_major: str = "col",
    accumulator: str = "",
    out: str = "",
) -> Problem:
    """A problem of wgmma's, its lines aligned."""
    element = DTYPES[dtype]
    sums = DTYPES[accumulator or element.accumulators[0]]
    result = DTYPES[out or ("int32" if sums.kind == "int" else "float16")]
    return Problem.dense(*size, element, out=result, accumulator=sums, a_major=a_major, b_major=b_major)
