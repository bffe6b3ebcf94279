"""Every rung on a GPU against a float64 reference, as tasks of a journal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from warptile.bench.campaign import wgmma_checks
from warptile.bench.campaign.journal import JournalTask
from warptile.bench.protocol.measurements import Check, ProblemKey
from warptile.bench.protocol.workloads import (
    CORRECT_SHAPES,
    F32,
    GROUPS,
    MMA_GROUPS,
    OTHER_GROUPS,
    PACKED_SHAPE,
    WGMMA_GROUPS,
    TypeGroup,
    default_config,
    groups_of,
    square,
    to_problem,
)
from warptile.device import usual as usual_device
from warptile.dtypes import DTYPES
from warptile.planning.plan import Plan, illegal, make_plan
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.rung import Rung
from warptile.runtime.device_product import DeviceProduct
from warptile.verify.reference import Reference, products_per_rounding

SCALED = (0.5, -1.5)
"""alpha and beta of the checks that have a C."""

LAST = ("mma-final", "mma-sparse")
"""The rungs that are checked in every way."""


@dataclass(frozen=True)
class PlannedCheck:
    """One check: a rung on a problem with alpha and beta.

    Attributes:
        rung: the rung.
        key: the problem.
        alpha: factor of the product.
        beta: factor of C, which there is unless it is zero.
        offset: elements into memory at which matrices begin.
        displaced: which of them.
        padding: elements between their lines.
        changes: of the usual configuration, or all of it.
    """

    rung: Rung
    key: ProblemKey
    alpha: float = 1.0
    beta: float = 0.0
    offset: int = 0
    displaced: str = "ABCD"
    padding: int = 0
    changes: tuple[tuple[str, int], ...] = ()

    @property
    def problem(self) -> Problem:
        """What is computed."""
        how = {"offset": self.offset, "displaced": self.displaced, "padding": self.padding}
        return to_problem(self.key, with_c=self.beta != 0, **how)  # type: ignore[arg-type]

    @property
    def operands(self) -> tuple[object, ...]:
        """What two checks have in common that share operands."""
        return self.key, self.alpha, self.beta, self.offset, self.displaced, self.padding

    @property
    def name(self) -> str:
        """The task's name."""
        key = self.key
        words = [key.dtype, key.accumulator, key.b_major]
        words += ["a-col"] if key.a_major == "col" else []
        words += ["sparse"] if key.sparse else []
        words += ["scaled"] if self.beta != 0 else []
        words += [f"offset{self.offset}"] if self.offset else []
        words += [self.displaced] if self.displaced != "ABCD" else []
        words += [f"padding{self.padding}"] if self.padding else []
        changed = ",".join(f"{name}{value}" for name, value in self.changes)
        return f"check/{key.shape}/{'-'.join(words)}/{self.rung.name}{f'/{changed}' if changed else ''}"

    def plan(self, arch: str) -> Plan:
        """What is run."""
        usual = default_config(self.rung, self.problem, arch) or {}
        config = {**usual, **dict(self.changes)}
        return make_plan(self.problem, rung=self.rung.name, config=config, arch=arch)


class Checker:
    """Keeps the operands and the reference of the problem at hand; a new problem replaces them."""

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self._at_hand: PlannedCheck | None = None
        self._product: DeviceProduct | None = None
        self._expected: dict[int, Reference] = {}

    def _at(self, planned: PlannedCheck) -> DeviceProduct:
        if self._product is None or self._at_hand is None or self._at_hand.operands != planned.operands:
            if self._product is not None:
                self._product.close()
            key = planned.key
            self._product = DeviceProduct(
                planned.problem, sets=1, seed=key.m + key.n + key.k, alpha=planned.alpha, beta=planned.beta,
                offset_elements=planned.offset, displaced=planned.displaced,
            )  # fmt: skip
            self._at_hand, self._expected = planned, {}
        return self._product

    def check(self, planned: PlannedCheck) -> Check:
        """Compile, launch once, compare every element."""
        product, rung = self._at(planned), planned.rung
        plan = planned.plan(self.arch)
        together = products_per_rounding(rung.family, product.problem.a.dtype)
        if together not in self._expected:
            self._expected[together] = product.reference(products_per_rounding=together)
        found = product.check(plan, self._expected[together])
        product.unload(plan)
        finite = math.isfinite(found.error_ratio)
        failed = None if finite else "a NaN or infinity where the product has none"
        return Check(
            rung=rung.name, problem=planned.key, config=dict(plan.config), alpha=planned.alpha, beta=planned.beta,
            offset=planned.offset, displaced=planned.displaced, padding=planned.padding,
            error_ratio=found.error_ratio if finite else None, guards_intact=found.guards_intact,
            unwritten=found.unwritten, failed=found.wrong if found.left_behind else failed,
        )  # fmt: skip


def plan_checks(rungs: Sequence[Rung], arch: str) -> Iterator[PlannedCheck]:
    """What is checked, ordered so that neighbours share operands and reference; nothing twice.

    Each rung's own groups on all shapes; on the ragged shapes also B stored as [N, K], alpha and beta with a C, and
    the other types that it takes. The mma family in addition in all its types, majors and alignments. The wgmma family
    in its own ways alone: `warptile.bench.campaign.wgmma_checks`.
    """
    others = [rung for rung in rungs if rung.family != "wgmma"]
    hopper = [rung for rung in rungs if rung.family == "wgmma"]
    return iter(dict.fromkeys((*_of_all(others, arch), *_of_mma(others, arch), *_of_wgmma(hopper, arch))))


def _of_all(rungs: Sequence[Rung], arch: str) -> Iterator[PlannedCheck]:
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


def _of_mma(rungs: Sequence[Rung], arch: str) -> Iterator[PlannedCheck]:
    """Every combination of types. The shape of primes, whose rows are aligned to an element only, in NN and TT for
    every rung; for the last ones also the shape that 16-byte loads fit, all layouts, and matrices that start one
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


def _of_wgmma(rungs: Sequence[Rung], arch: str) -> Iterator[PlannedCheck]:
    """Every type in every layout at every alignment, some with C, whole waves once, and the modes of the last rung."""
    alpha, beta = SCALED
    for group in (*WGMMA_GROUPS, F32):
        for a_major, b_major in group.majors:
            for place in wgmma_checks.PLACEMENTS:
                taking = [
                    rung for rung in rungs if place in wgmma_checks.placements_of(rung.name, group, a_major, b_major)
                ]
                yield from _placed(taking, group, place, (a_major, b_major), arch)
        if group in wgmma_checks.SCALED_GROUPS:
            for place in (wgmma_checks.ALIGNED, wgmma_checks.ODD_N):
                yield from _placed(rungs, group, place, ("row", "col"), arch, alpha=alpha, beta=beta)
    groups = {rung.name: groups_of(rung, arch) for rung in rungs}
    for group in dict.fromkeys(group for of_rung in groups.values() for group in of_rung):
        for rung in (rung for rung in rungs if group in groups[rung.name]):
            key = msgspec.structs.replace(square(rung, group, 1), **dict(zip("mnk", wgmma_checks.LARGE, strict=True)))
            yield from _taken([rung], key, arch)
    for group, places in wgmma_checks.MODE_GROUPS:
        for place in places:
            for rung in rungs:
                if rung.name == "wgmma-final":
                    yield from _modes(rung, group, place, arch)


def _placed(
    rungs: Sequence[Rung],
    group: TypeGroup,
    place: wgmma_checks.OperandPlacement,
    majors: tuple[str, str],
    arch: str,
    **how: Any,
) -> Iterator[PlannedCheck]:
    """The checks of some rungs at one operand placement."""
    a_major, b_major = majors
    for rung in rungs:
        key = group.key(*place.shape(group), b_major, a_major, sparse=rung.sparse)
        try:
            problem = to_problem(key, **place.how)
        except AssertionError:
            continue
        if default_config(rung, problem, arch) is not None:
            yield PlannedCheck(rung, key, changes=_few_blocks(rung, problem, group, place, arch), **place.how, **how)


def _few_blocks(
    rung: Rung, problem: Problem, group: TypeGroup, place: wgmma_checks.OperandPlacement, arch: str
) -> tuple[tuple[str, int], ...]:
    """The configuration's changes that give a few persistent CTAs several tiles each, where asked for: the last rung
    then has its usual tile, however small the problem is."""
    config = default_config(rung, problem, arch) or {}
    if place.persistent_ctas is None or "SMS" not in config:
        return ()
    changes: Config = {"SMS": place.persistent_ctas}
    if rung.name == "wgmma-final":
        changes = wgmma_checks.mode_config(changes, group, problem.a.dtype.bits)
    legal = illegal(rung, problem, {**config, **changes}, usual_device(arch)) is None
    return tuple(changes.items()) if legal else ()


def _modes(rung: Rung, group: TypeGroup, place: wgmma_checks.OperandPlacement, arch: str) -> Iterator[PlannedCheck]:
    """The modes of the last rung that a problem takes."""
    key = group.key(*place.shape(group), "col")
    problem = to_problem(key)
    for mode in wgmma_checks.MODES:
        config: Config = wgmma_checks.mode_config(mode, group, DTYPES[group.dtype].bits)
        if illegal(rung, problem, config, usual_device(arch)) is None:
            yield PlannedCheck(rung, key, changes=tuple(config.items()))


def _taken(rungs: Sequence[Rung], key: ProblemKey, arch: str, **how: Any) -> Iterator[PlannedCheck]:
    """Checks of one problem by the rungs that take it, with a sparse A where they take no other."""
    for rung in rungs:
        mine = msgspec.structs.replace(key, sparse=rung.sparse)
        if default_config(rung, to_problem(mine), arch) is not None:
            yield PlannedCheck(rung, mine, **how)


def tasks(rungs: Sequence[Rung], checker: Checker) -> Iterator[JournalTask]:
    """The checks as tasks, whose results are `Check`."""
    for planned in plan_checks(rungs, checker.arch):
        yield planned.name, lambda planned=planned: checker.check(planned)  # type: ignore[misc]
