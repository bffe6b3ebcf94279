"""The plans that ship: those whose kernels are worth compiling before anything is computed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from warptile.device import KNOWN, REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES, DType
from warptile.planning import shipped_table
from warptile.planning.plan import Plan, illegal
from warptile.planning.tuned_table import LIKE, ProblemClass
from warptile.rungs import RUNGS


def shipped_plans(device: DeviceLimits, dtypes: Collection[DType] | None = None) -> Iterator[Plan]:
    """The legal plans of the shipped tables on a GPU, adapted to its SMs. Many of them have the same kernel.

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
            config = dict(zip(table.keys, entry.config, strict=True))
            for element in [shipped.a.dtype] if dtypes is None else dtypes:
                if shipped.a.dtype.name not in (element.name, LIKE.get(element.name)):
                    continue
                out = element if shipped.d.dtype == shipped.a.dtype else shipped.d.dtype
                problem = replace(
                    shipped, a=replace(shipped.a, dtype=element), b=replace(shipped.b, dtype=element),
                    d=replace(shipped.d, dtype=out),
                    c=None if shipped.c is None else replace(shipped.c, dtype=out),
                )  # fmt: skip
                made = config
                if tuned_on.multiprocessors != device.multiprocessors:
                    extents = problem.m, problem.n, problem.k, problem.batch
                    made = dict(rung.adapt(problem, config, extents, device, tuned_on))
                if illegal(rung, problem, made, device) is None:
                    yield Plan(problem, rung, made, table.words(entry), device)


def shipped_dtypes() -> tuple[DType, ...]:
    """The operand types that have shipped plans, by name."""
    tables = (shipped_table.table(name) for name in RUNGS)
    names = {entry.problem[3] for table in tables if table is not None for entry in table.entries}
    return tuple(DTYPES[name] for name in sorted(names | {name for name, like in LIKE.items() if like in names}))
