"""Every rung on a GPU against a float64 reference, as tasks of a journal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from warptile.bench.journal import Task
from warptile.bench.records import Check, ProblemKey
from warptile.bench.workloads import (
    CORRECT_SHAPES,
    GROUPS,
    MMA_GROUPS,
    OTHER_GROUPS,
    PACKED_SHAPE,
    default_config,
    groups_of,
    to_problem,
)
from warptile.device_product import DeviceProduct, products_per_rounding
from warptile.plan import make_plan
from warptile.problem import Problem
from warptile.reference import Reference
from warptile.rungs.rung import Rung

SCALED = (0.5, -1.5)
"""alpha and beta of the checks that have a C."""

LAST = ("mma-final", "mma-sparse")
"""The rungs that are checked in every way."""


@dataclass(frozen=True)
class Planned:
    """One check: a rung on a problem with alpha, beta, and matrices that begin ``offset`` elements into memory."""

    rung: Rung
    key: ProblemKey
    alpha: float = 1.0
    beta: float = 0.0
    offset: int = 0

    @property
    def problem(self) -> Problem:
        """What is computed."""
        return to_problem(self.key, with_c=self.beta != 0, offset=self.offset)

    @property
    def name(self) -> str:
        """The task's name."""
        key = self.key
        words = [key.dtype, key.accumulator, key.b_major]
        words += ["a-col"] if key.a_major == "col" else []
        words += ["sparse"] if key.sparse else []
        words += ["scaled"] if self.beta != 0 else []
        words += [f"offset{self.offset}"] if self.offset else []
        return f"check/{key.shape}/{'-'.join(words)}/{self.rung.name}"


class Checker:
    """Keeps the operands and the reference of the problem at hand; a new problem replaces them."""

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self._at_hand: Planned | None = None
        self._product: DeviceProduct | None = None
        self._expected: dict[int, Reference] = {}

    def _at(self, planned: Planned) -> DeviceProduct:
        at_hand = self._at_hand
        if self._product is None or at_hand is None or replace(at_hand, rung=planned.rung) != planned:
            if self._product is not None:
                self._product.close()
            key = planned.key
            self._product = DeviceProduct(
                planned.problem, sets=1, seed=key.m + key.n + key.k, alpha=planned.alpha, beta=planned.beta,
                offset_elements=planned.offset,
            )  # fmt: skip
            self._at_hand, self._expected = planned, {}
        return self._product

    def check(self, planned: Planned) -> Check:
        """Compile, launch once, compare every element."""
        product, rung = self._at(planned), planned.rung
        config = default_config(rung, product.problem, self.arch)
        plan = make_plan(product.problem, rung=rung.name, config=config, arch=self.arch)
        together = products_per_rounding(rung.family, product.problem.a.dtype)
        if together not in self._expected:
            self._expected[together] = product.reference(products_per_rounding=together)
        found = product.check(plan, self._expected[together])
        product.unload(plan)
        finite = math.isfinite(found.error_ratio)
        return Check(
            rung=rung.name, problem=planned.key, config=dict(plan.config), alpha=planned.alpha, beta=planned.beta,
            offset=planned.offset, error_ratio=found.error_ratio if finite else None,
            guards_intact=found.guards_intact, unwritten=found.unwritten,
            failed=None if finite else "a NaN or infinity where the product has none",
        )  # fmt: skip


def plan_checks(rungs: Sequence[Rung], arch: str) -> Iterator[Planned]:
    """What is checked, ordered so that neighbours share operands and reference; nothing twice.

    Each rung's own groups on all shapes; on the ragged shapes also B stored as [N, K], alpha and beta with a C, and
    the other types that it takes. The mma family in addition in all its types, majors and alignments.
    """
    return iter(dict.fromkeys((*_of_all(rungs, arch), *_of_mma(rungs, arch))))


def _of_all(rungs: Sequence[Rung], arch: str) -> Iterator[Planned]:
    alpha, beta = SCALED
    own = {rung.name: groups_of(rung, arch) for rung in rungs}
    others = {rung.name: groups_of(rung, arch, OTHER_GROUPS) for rung in rungs}
    for shape in CORRECT_SHAPES:
        for group in GROUPS:
            taking = [rung for rung in rungs if group in own[rung.name]]
            yield from _taken(taking, group.key(*shape), arch)
            if shape == CORRECT_SHAPES[0]:
                continue
            yield from _taken(taking, group.key(*shape), arch, alpha=alpha, beta=beta)
            yield from _taken(taking, group.key(*shape, b_major="col"), arch)
        if shape != CORRECT_SHAPES[0]:
            for group in OTHER_GROUPS:
                taking = [rung for rung in rungs if group in others[rung.name]]
                yield from _taken(taking, group.key(*shape), arch)


def _of_mma(rungs: Sequence[Rung], arch: str) -> Iterator[Planned]:
    """Every combination of types. The shape of primes, whose rows are aligned to an element alone, in both equal majors
    for every rung; for the last ones also the shape that 16-byte loads fit, all majors, and matrices that begin one
    element into memory. A sparse A needs a K of whole groups."""
    family = [rung for rung in rungs if rung.family == "mma"]
    last = [rung for rung in family if rung.name in LAST]
    sparse = [rung for rung in family if rung.sparse]
    _, aligned, odd = CORRECT_SHAPES
    for group in MMA_GROUPS:
        primes = PACKED_SHAPE if group.packed else odd
        for a_major, b_major in group.majors:
            taking = family if group.packed or a_major == b_major else last
            yield from _taken(taking, group.key(*primes, b_major, a_major), arch)
            for offset in (0, 1):
                yield from _taken(last, group.key(*aligned, b_major, a_major), arch, offset=offset)
            yield from _taken(sparse, group.key(*PACKED_SHAPE, b_major, a_major), arch)


def _taken(rungs: Sequence[Rung], key: ProblemKey, arch: str, **how: Any) -> Iterator[Planned]:
    """Checks of one problem by the rungs that take it, with a sparse A where they take no other."""
    for rung in rungs:
        mine = msgspec.structs.replace(key, sparse=rung.sparse)
        if default_config(rung, to_problem(mine), arch) is not None:
            yield Planned(rung, mine, **how)


def tasks(rungs: Sequence[Rung], checker: Checker) -> Iterator[Task]:
    """The checks as tasks, whose results are `Check`."""
    for planned in plan_checks(rungs, checker.arch):
        yield planned.name, lambda planned=planned: checker.check(planned)  # type: ignore[misc]
