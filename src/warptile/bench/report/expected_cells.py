"""Expected times of recorded cells (`warptile.expected`)."""

from __future__ import annotations

from functools import lru_cache

from warptile.bench.protocol.measurements import LadderCell, ProblemKey
from warptile.bench.protocol.workloads import to_problem
from warptile.device import REFERENCE
from warptile.expected.expected_time import ExpectedTime, expected_time
from warptile.planning.plan import illegal
from warptile.rungs import RUNGS


def expected_of(cell: LadderCell, *, sustained: bool = True) -> ExpectedTime | None:
    """The expected time of a cell's launch; None where its rung no longer has the cell's configuration."""
    return _expected(cell.rung, cell.problem, tuple(cell.config.items()), sustained)


@lru_cache(maxsize=2048)
def _expected(
    name: str, key: ProblemKey, tunables: tuple[tuple[str, int], ...], sustained: bool
) -> ExpectedTime | None:
    rung, problem, config = RUNGS[name], to_problem(key), dict(tunables)
    if not rung.default_config(problem, REFERENCE).keys() <= config.keys():
        return None
    if illegal(rung, problem, config, REFERENCE) is not None:
        return None
    return expected_time(rung, problem, config, sustained=sustained)
