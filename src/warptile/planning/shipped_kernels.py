"""The plans that ship: those whose kernels are worth compiling before anything is computed.

They are those of the tuned tables, and one for each of the kernels that plans choose most, for aligned operands in the
two layouts that networks have: B as [N, K], and as [K, N].
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from warptile.device import KNOWN, REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES, DType
from warptile.planning import shipped_table
from warptile.planning.plan import Plan, illegal
from warptile.planning.tuned_table import LIKE, ProblemClass, is_outdated
from warptile.problem import Problem
from warptile.rungs import RUNGS, Config

EXAMPLE = "an example of its kernel"
"""Origin of plans that stand for a kernel, whatever a plan of their problem would take."""


def shipped_plans(device: DeviceLimits, dtypes: Collection[DType] | None = None) -> Iterator[Plan]:
    """Legal plans on a GPU: for the problems of the shipped tables, as tuned, or as predicted where tuned
    configurations do not count, on another number of SMs and where they are outdated; and one for each of the
    kernels that plans choose most. Many have the same kernel.

    Args:
        device: the GPU.
        dtypes: operand types. What ships for a type serves those that cost the same, as it does in the tuned table
            (`warptile.planning.tuned_table.LIKE`). By default the types that the tables have.
    """
    for rung in RUNGS.values():
        table = shipped_table.table(rung.name)
        if table is None:
            continue
        tuned_on = KNOWN.get(table.gpu, REFERENCE)
        for entry in table.entries:
            shipped = ProblemClass(*entry.problem).problem(sparse=rung.sparse)
            config: Config = dict(zip(table.keys, entry.config, strict=True))
            for element in [shipped.a.dtype] if dtypes is None else dtypes:
                if shipped.a.dtype.name not in (element.name, LIKE.get(element.name)):
                    continue
                out = element if shipped.d.dtype == shipped.a.dtype else shipped.d.dtype
                problem = replace(
                    shipped, a=replace(shipped.a, dtype=element), b=replace(shipped.b, dtype=element),
                    d=replace(shipped.d, dtype=out),
                    c=None if shipped.c is None else replace(shipped.c, dtype=out),
                )  # fmt: skip
                made, origin = config, table.words(entry)
                chosen = rung.default_config(problem, device)
                if tuned_on.multiprocessors != device.multiprocessors or is_outdated(
                    problem, rung, config, chosen, device
                ):
                    made, origin = chosen, "predicted"
                if illegal(rung, problem, made, device) is None:
                    yield Plan(problem, rung, made, origin, device)

    for rung in RUNGS.values():
        for element in shipped_dtypes() if dtypes is None else dtypes:
            for b_major in ("col", "row") if element.bits == 16 else ("col",):
                if element.name in rung.dtypes and element.name in USUAL:
                    accumulator, out = (DTYPES[name] for name in USUAL[element.name])
                    like = Problem.dense(64, 64, 64, element, out=out, accumulator=accumulator, b_major=b_major)
                    for problem, example in rung.kernel_examples(like, device):
                        if illegal(rung, problem, example, device) is None:
                            yield Plan(problem, rung, example, EXAMPLE, device)


USUAL = {
    "bfloat16": ("float32", "bfloat16"), "float16": ("float32", "float16"), "tfloat32": ("float32", "float32"),
    "float8_e4m3": ("float32", "bfloat16"), "float8_e5m2": ("float32", "bfloat16"), "int8": ("int32", "int32"),
    "uint8": ("int32", "int32"),
}  # fmt: skip
"""Accumulator and output type of operand types, as `matmul` has them when nothing is said."""


def shipped_dtypes() -> tuple[DType, ...]:
    """The operand types that have shipped plans, by name."""
    tables = (shipped_table.table(name) for name in RUNGS)
    names = {entry.problem[3] for table in tables if table is not None for entry in table.entries}
    return tuple(DTYPES[name] for name in sorted(names | {name for name, like in LIKE.items() if like in names}))
