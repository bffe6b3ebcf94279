"""The plans that ship: those whose kernels are worth compiling before anything is computed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from warptile.device import KNOWN, REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES, DType
from warptile.planning import shipped_table
from warptile.planning.plan import Plan, illegal
from warptile.planning.tuned_table import LIKE, ProblemClass
from warptile.rungs import RUNGS, Config


def shipped_plans(device: DeviceLimits, dtypes: Collection[DType] | None = None) -> Iterator[Plan]:
    """Legal plans on a GPU for the problems of the shipped tables: as tuned, or on another number of SMs, for which
    tuned configurations do not count, as predicted. Many of them have the same kernel.

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
                if tuned_on.multiprocessors != device.multiprocessors:
                    made, origin = rung.default_config(problem, device), "predicted"
                if illegal(rung, problem, made, device) is None:
                    yield Plan(problem, rung, made, origin, device)


def shipped_dtypes() -> tuple[DType, ...]:
    """The operand types that have shipped plans, by name."""
    tables = (shipped_table.table(name) for name in RUNGS)
    names = {entry.problem[3] for table in tables if table is not None for entry in table.entries}
    return tuple(DTYPES[name] for name in sorted(names | {name for name, like in LIKE.items() if like in names}))
