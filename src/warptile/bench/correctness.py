"""Every rung on a GPU against a float64 reference, as tasks of a journal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from warptile.bench import workloads
from warptile.bench.journal import Task
from warptile.bench.records import Check, ProblemKey
from warptile.bench.workloads import CORRECT_SHAPES, GROUPS, OTHER_GROUPS, groups_of, to_problem
from warptile.device_product import DeviceProduct, products_per_rounding
from warptile.plan import make_plan
from warptile.reference import Reference
from warptile.rungs.rung import Rung

SCALED = (0.5, -1.5)
"""alpha and beta of the checks that have a C."""


class Checker:
    """Keeps the operands and the reference of the problem at hand; a new problem replaces them."""

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self._key: tuple[ProblemKey, float, float] | None = None
        self._product: DeviceProduct | None = None
        self._expected: dict[int, Reference] = {}

    def _at(self, key: ProblemKey, alpha: float, beta: float) -> DeviceProduct:
        if self._product is None or self._key != (key, alpha, beta):
            if self._product is not None:
                self._product.close()
            problem = to_problem(key, with_c=beta != 0)
            self._product = DeviceProduct(problem, sets=1, seed=key.m + key.n + key.k, alpha=alpha, beta=beta)
            self._key, self._expected = (key, alpha, beta), {}
        return self._product

    def check(self, rung: Rung, key: ProblemKey, alpha: float = 1.0, beta: float = 0.0) -> Check:
        """Compile, launch once, compare every element."""
        product = self._at(key, alpha, beta)
        plan = make_plan(product.problem, rung=rung.name, arch=self.arch)
        together = products_per_rounding(rung.family)
        if together not in self._expected:
            self._expected[together] = product.reference(products_per_rounding=together)
        found = product.check(plan, self._expected[together])
        product.unload(plan)
        finite = math.isfinite(found.error_ratio)
        return Check(
            rung=rung.name, problem=key, config=dict(plan.config), alpha=alpha, beta=beta,
            error_ratio=found.error_ratio if finite else None,
            guards_intact=found.guards_intact, unwritten=found.unwritten,
            failed=None if finite else "a NaN or infinity where the product has none",
        )  # fmt: skip


def plan_checks(rungs: Sequence[Rung], arch: str) -> Iterator[tuple[Rung, ProblemKey, float, float]]:
    """What is checked: (rung, problem, alpha, beta), ordered so that neighbours share operands and reference.

    Each rung's own groups on all shapes; on the ragged shapes also B stored as [N, K], alpha and beta with a C, and
    the other types that it takes.
    """
    alpha, beta = SCALED
    own = {rung.name: groups_of(rung, arch) for rung in rungs}
    others = {rung.name: groups_of(rung, arch, OTHER_GROUPS) for rung in rungs}
    for shape in CORRECT_SHAPES:
        for group in GROUPS:
            taking = [rung for rung in rungs if group in own[rung.name]]
            yield from ((rung, group.key(*shape), 1.0, 0.0) for rung in taking)
            if shape == CORRECT_SHAPES[0]:
                continue
            yield from ((rung, group.key(*shape), alpha, beta) for rung in taking)
            columns = group.key(*shape, b_major="col")
            yield from ((rung, columns, 1.0, 0.0) for rung in taking if _takes(rung, columns, arch))
        if shape != CORRECT_SHAPES[0]:
            for group in OTHER_GROUPS:
                taking = [rung for rung in rungs if group in others[rung.name]]
                yield from ((rung, group.key(*shape), 1.0, 0.0) for rung in taking)


def _takes(rung: Rung, key: ProblemKey, arch: str) -> bool:
    return workloads.default_config(rung, to_problem(key), arch) is not None


def tasks(rungs: Sequence[Rung], checker: Checker) -> Iterator[Task]:
    """The checks as tasks, whose results are `Check`."""
    for rung, key, alpha, beta in plan_checks(rungs, checker.arch):
        types = f"{key.dtype}-{key.accumulator}-{key.b_major}{'' if beta == 0 else '-scaled'}"
        name = f"check/{key.shape}/{types}/{rung.name}"
        yield name, lambda rung=rung, key=key, alpha=alpha, beta=beta: checker.check(rung, key, alpha, beta)  # type: ignore[misc]
