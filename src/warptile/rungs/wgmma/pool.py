"""All kernels that plans choose from for a problem, with their splits of K, and the predicted time of each, at once.

What does not depend on extents (which kernels take the types and layouts, how many stages fit) is worked out once for
all problems of a kind. What does is formulas, which become machine code in a process that plans much
(`warptile.native.formulas`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.device import DeviceLimits
from warptile.dtypes import DTYPES
from warptile.native.formulas import FloatArray, Formulas, lookup
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand, Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import ceil_div
from warptile.rungs.repack import fused_repacking_ms, repacking_ms
from warptile.rungs.wgmma import block_scales, epilogue, epilogue_cost, fused_repack, promotion, residue_classes, tiles
from warptile.rungs.wgmma.cost import Launches
from warptile.rungs.wgmma.kernels import Kernel, kernels_for, shape_of
from warptile.rungs.wgmma.launches import pitch_bytes, type_index
from warptile.rungs.wgmma.model import EVERY, AllIn, Model, Places, Predictions, model_of
from warptile.rungs.wgmma.tile_shapes import (
    FEWEST_STAGES,
    SQUARE_GROUP,
    TUNABLES,
    cluster_tiles,
    fewest_sms,
    stages_beside,
)
from warptile.rungs.wgmma.tiles import ROW_BYTES, WIDEST, WIDEST_OVERLAPPED

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Illegal = Callable[[Problem, Config], str | None]

SPLITS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
"""Numbers of splits of K through global memory, in addition to the most that the SMs allow."""

TYPICAL = 8192
"""Extents, K of 16 bits, of the problem that says which kernels a kind of problems can take at all."""

_UNEVEN_SPLITS = (2, 3, 5, 7)
"""Any BN has one of these numbers of splits by which its columns cannot be divided: its splits form no cluster."""

_MOST_SPLITS, _IN_CLUSTER, _GLOBALLY = 0, 1, 2
"""The number of splits that stands for as many as fit; where the partial sums of a row's splits meet."""

_NUMBERS = (*TUNABLES, "unaligned_a", "stage_bytes", "held", "subtiles", "meeting", "order")
_PLACE = {name: place for place, name in enumerate(_NUMBERS)}


@dataclass(frozen=True)
class ConfigColumns:
    """Configurations, a column for each.

    Attributes:
        numbers: whole ones, a row for each name: tunables; whether a misaligned A is loaded through registers; bytes of
            a stage; subtiles of a tile that the next mainloop stores, and all of them; where splits meet; and which
            comes first of equal times.
    """

    numbers: FloatArray

    def __getitem__(self, name: str) -> FloatArray:
        row: FloatArray = self.numbers[_PLACE[name]]
        return row

    def __len__(self) -> int:
        return len(self.numbers[0])

    @cached_property
    def config(self) -> Mapping[str, FloatArray]:
        """The tunables by name."""
        return dict(zip(TUNABLES, self.numbers, strict=False))

    def take(self, places: Places | BoolArray) -> ConfigColumns:
        """Some of them."""
        return ConfigColumns(self.numbers[:, places])

    def changed(self, **values: Any) -> ConfigColumns:
        """The same with other numbers."""
        numbers = self.numbers.copy()
        for name, value in values.items():
            numbers[_PLACE[name]] = value
        return ConfigColumns(numbers)

    @staticmethod
    def joined(*several: ConfigColumns) -> ConfigColumns:
        """All of them."""
        return ConfigColumns(np.ascontiguousarray(np.concatenate([each.numbers for each in several], axis=1)))


@dataclass(frozen=True)
class Pool:
    """Configurations and their predicted times in microseconds."""

    rows: ConfigColumns
    times_us: FloatArray

    def config(self, place: int) -> Config:
        """One of the configurations."""
        return dict(zip(TUNABLES, map(int, self.rows.numbers[:, place].tolist()), strict=False))

    def ranked(self) -> IntArray:
        """Places in order of predicted time."""
        return np.lexsort((self.rows["order"], self.times_us))

    def __iter__(self) -> Iterator[tuple[float, Config]]:
        """Predicted times and configurations, in the order of kernels."""
        for place in np.argsort(self.rows["order"], kind="stable"):
            yield float(self.times_us[place]), self.config(int(place))


def pool(problem: Problem, illegal: Illegal, device: DeviceLimits, kernels: tuple[Kernel, ...] | None = None) -> Pool:
    """Kernels whose tiles are not mostly padding, with every split of K, and their times: of those that plans choose
    from, only configurations that may be the fastest.

    Args:
        problem: whose types the kernel must take.
        illegal: the rung's own legality.
        device: where it runs.
        kernels: all configurations of these.
    """
    rows = _fitting(problem, _rows_of(problem, illegal, device, kernels), device)
    aligned = tiles.is_aligned(problem)
    if aligned:
        numbers, columns = _problem_numbers(problem), rows.numbers
    else:
        unaligned = _Unaligned(problem)
        rows = unaligned.applicable(rows)
        numbers, columns = _problem_numbers(unaligned.seen), np.concatenate((rows.numbers, unaligned.as_seen(rows)))
    predictions = _predictions(model_of(device.name), not aligned)

    all_in = _all_in(problem, rows)
    if kernels is None:
        near, times_us = predictions.nearest(columns, numbers, all_in)
        return Pool(rows.take(near), times_us)
    return Pool(rows, all_in(predictions.times_us(columns, numbers), EVERY))


# --- what does not depend on extents ----------------------------------------------------------------------------


def _rows_of(
    problem: Problem, illegal: Illegal, device: DeviceLimits, kernels: tuple[Kernel, ...] | None
) -> ConfigColumns:
    a, b, d = problem.a, problem.b, problem.d
    return _kind(
        a.dtype.name, problem.accumulator.name, d.dtype.name, a.major, b.major,
        a.alignment_bytes == MAX_ALIGNMENT_BYTES, b.alignment_bytes == MAX_ALIGNMENT_BYTES,
        residue_classes.d_is_aligned(problem), problem.batch == 1, problem.c is not None, problem.batch_invariant,
        shape_of(problem), epilogue.staged_sets(problem), illegal, device, kernels,
    )  # fmt: skip


@lru_cache(maxsize=512)  # of 100 KB at most
def _kind(
    element: str, accumulator: str, output: str, a_major: str, b_major: str, a_aligned: bool, b_aligned: bool,
    d_aligned: bool, single: bool, with_c: bool, batch_invariant: bool, shape: str, sets: int, illegal: Illegal,
    device: DeviceLimits, kernels: tuple[Kernel, ...] | None,
) -> ConfigColumns:  # fmt: skip
    """The kernels that take problems of a kind, with as many stages as fit and every number of splits."""

    @cache
    def of_extents(m: int, n: int) -> Problem:
        of = DTYPES[element]
        problem = Problem.dense(
            m, n, TYPICAL * 16 // of.bits, of, out=DTYPES[output], accumulator=DTYPES[accumulator], a_major=a_major,
            b_major=b_major, with_c=with_c, batch=1 if single else 2,
        )  # fmt: skip
        a, b, d = map(aligned, (problem.a, problem.b, problem.d), (a_aligned, b_aligned, d_aligned))
        return replace(problem, a=a, b=b, d=d, batch_invariant=batch_invariant)

    def aligned(operand: Operand, holds: bool) -> Operand:
        return replace(operand, alignment_bytes=MAX_ALIGNMENT_BYTES if holds else max(1, operand.dtype.bits // 8))

    problem = of_extents(TYPICAL, TYPICAL)
    plain = tiles.view(problem, _base())
    views = plain.problem, plain.swapped.problem
    through = [tiles.may_take_unaligned_a(problem, swap) for swap in (0, 1)]
    found: list[ConfigColumns] = []
    for order, kernel in enumerate(kernels or kernels_for(problem, shape)):
        for unaligned in (0, 1) if through[kernel.swap] and kernel.schedule in ("basic", "split", "cluster") else (0,):
            made = _filled(views[kernel.swap], kernel, device, unaligned, sets, order)
            if made is not None and _is_taken(of_extents, made, illegal):
                found.append(made)
    return ConfigColumns.joined(*found) if found else ConfigColumns(np.zeros((len(_NUMBERS), 0)))


def _is_taken(of_extents: Callable[[int, int], Problem], rows: ConfigColumns, illegal: Illegal) -> bool:
    """Whether a kernel takes problems of a kind, as far as that does not depend on extents: asked for a large one.
    With K split, how many CTAs wait for each other depends on extents: asked for a few tiles of D.

    Args:
        of_extents: the problem of that kind with so many rows and columns of D.
        rows: the kernel's configurations; the first one is asked for.
        illegal: the rung's own legality.
    """
    config: dict[str, int] = dict(zip(TUNABLES, map(int, rows.numbers[:, 0].tolist()), strict=False))
    bm, bn, meeting = config["BM"], config["BN"], int(rows["meeting"][0])
    if meeting == _GLOBALLY:
        columns = tiles.columns_per_warpgroup(config)
        config["SPLITS"] = next(each for each in _UNEVEN_SPLITS if columns % (8 * each))
    m = bm * config["CM"] if meeting else TYPICAL
    if rows["unaligned_a"][0]:
        n = bn  # few columns: A is loaded through registers
    else:
        # More columns, and no two tiles: A is not loaded through registers (`tiles.loads_unaligned_a`).
        n = bn * max(tiles.FEW_COLUMNS // bn + 1, config["CN"], 3) if meeting else TYPICAL
    return illegal(of_extents(n, m) if config["SWAP"] else of_extents(m, n), config) is None


def _filled(
    seen: Problem, kernel: Kernel, device: DeviceLimits, unaligned: int, sets: int, order: int
) -> ConfigColumns | None:
    """A kernel's configurations, one for each number of splits; None if too few stages fit.

    Args:
        seen: a problem of the kind that the kernel takes, without an epilogue, as it is seen without residue classes
            and without an A that is loaded through registers.
        kernel: the kernel.
        device: where it runs.
        unaligned: 1 if A is loaded through registers.
        sets: `epilogue.staged_sets` of problems with an epilogue.
        order: the kernel's number.
    """
    overlap = int(kernel.schedule == "overlap")
    config: dict[str, int] = {
        "BM": kernel.bm, "BN": kernel.bn, "BK": kernel.rows * ROW_BYTES * 8 // seen.a.dtype.bits, "STAGES": 2,
        "CONSUMERS": kernel.consumers, "PINGPONG": int(kernel.schedule == "ping-pong"), "CM": kernel.cm,
        "CN": kernel.cn, "GROUP": 8, "ALONG_N": 0, "OVERLAP": overlap, "STREAM": int(kernel.schedule == "stream-K"),
        "SPLITS": 1, "SWAP": kernel.swap, "SMS": device.sms,
    }  # fmt: skip
    widest = 0 if not residue_classes.d_is_aligned(seen) else WIDEST_OVERLAPPED if overlap else WIDEST
    columns = tiles.columns_per_warpgroup(config)
    staged = sets > 0 and widest > 0 and not unaligned and not overlap
    whole, part = (  # what a CTA stores: of a tile, and where CTAs of a cluster that split K share its columns
        tiles.epilogue_subtiles(seen.d.dtype.bits // 8, each, seen.d.major == "col", widest, staged)
        for each in (columns, columns // kernel.parts)
    )
    each = tiles.stage_bytes(seen, config, unaligned_a=bool(unaligned))
    buffers = max(epilogue.buffer_bytes(whole, sets), epilogue.buffer_bytes(part, sets))
    stages = stages_beside(kernel.consumers * buffers, each)
    if stages < (2 if overlap else FEWEST_STAGES) or (kernel.bm > 128 and stages < 2):
        return None
    config["STAGES"] = max(stages, 2)
    count, held, _ = epilogue.held_subtiles(whole, seen, config) if overlap else (1, 0, 0)
    if overlap and held == 0:
        return None
    splits: tuple[int, ...] = (1,)
    meeting = 0
    if kernel.schedule == "cluster":
        splits, meeting = (kernel.parts,), _IN_CLUSTER
    elif kernel.schedule == "split":
        splits, meeting = (*SPLITS, _MOST_SPLITS), _GLOBALLY
    rest = (unaligned, each, held, count, meeting, order)
    return ConfigColumns(np.array([(*({**config, "SPLITS": number}.values()), *rest) for number in splits], float).T)


# --- what does ----------------------------------------------------------------------------------------------------


_EXTENTS = ("m", "n", "k", "batch", "accumulator_bits")


def _fitting(problem: Problem, rows: ConfigColumns, device: DeviceLimits) -> ConfigColumns:
    """Those that the extents allow, with their numbers of splits and of SMs."""
    extents = (problem.m, problem.n, problem.k, problem.batch, problem.accumulator.bits)
    fits, splits, sms = _fit_formulas(device)(rows.numbers, np.array(extents, float))
    places = (fits > 0).nonzero()[0]  # of truth values: NumPy is slower to find numbers other than 0
    chosen = rows.take(places)
    chosen["SPLITS"][:], chosen["SMS"][:] = splits[places], sms[places]
    return chosen


@lru_cache(maxsize=8)
def _fit_formulas(device: DeviceLimits) -> Formulas:
    return Formulas(partial(_fit, device=device), _NUMBERS, _EXTENTS)


def _fit(of: Mapping[str, Any], device: DeviceLimits) -> tuple[Any, Any, Any]:
    """Whether the extents allow a configuration, its splits, and the fewest SMs: tiles that are not mostly padding,
    enough K tiles for splits and overlapped stores, and splits that meet where the kernel has them meet."""
    m, n, k = of["m"], of["n"], of["k"]
    extents = m, n, k, of["batch"]
    swap, bm, bn, splits, meeting = of["SWAP"] == 1, of["BM"], of["BN"], of["SPLITS"], of["meeting"]
    fits = ((bm <= 64) | (bm < 2 * np.where(swap, n, m))) & ((bn <= 16) | (bn < 2 * np.where(swap, m, n)))
    count = cluster_tiles(extents, of)
    k_tiles = np.maximum(ceil_div(k, of["BK"]), 1)
    resident = lookup(tiles.resident_ctas(device), of["CM"] * of["CN"])
    most = np.minimum(resident // np.maximum(count * of["CM"] * of["CN"], 1), k_tiles)
    wanted = np.where(splits == _MOST_SPLITS, most, splits)
    even = ceil_div(k_tiles, ceil_div(k_tiles, np.maximum(wanted, 1)))
    listed = np.where(splits == _MOST_SPLITS, ~np.isin(even, SPLITS), even == wanted)  # each number once
    fits = fits & ((meeting == 0) | ((wanted > 1) & (wanted <= most) & (even > 1) & listed))
    config = {**of, "SPLITS": np.where(meeting == 0, splits, even)}
    ctas = np.minimum(of["CM"] * of["CN"] * config["SPLITS"], tiles.MAX_CLUSTER_CTAS + 1)
    meets = lookup(tiles.resident_ctas(device), ctas)
    together = tiles.reduces_in_cluster(of["accumulator_bits"], config, count, of["stage_bytes"], meets)
    fits = fits & ((meeting == 0) | (together == (meeting == _IN_CLUSTER)))
    fits = fits & ((of["OVERLAP"] == 0) | (k_tiles >= of["held"]))
    # Stream-K with fewer tiles than CTAs has many of them meet at each tile, one after the other: four times slower.
    fits = fits & ((of["STREAM"] == 0) | (count * of["CM"] * of["CN"] >= device.sms))
    return fits, config["SPLITS"], fewest_sms(extents, config, device)


_OF_PROBLEM = (
    "m", "n", "k", "batch", "of_a", "of_b", "pitch_a", "pitch_b", "pitch_d", "a_by_k", "b_by_k", "d_by_column",
    "d_aligned", "store_width", "element_bits", "d_bits", "with_c", "type",
)  # fmt: skip
"""Numbers of a problem, as all configurations see it."""

_EXCHANGED = (("m", "n"), ("of_a", "of_b"), ("pitch_a", "pitch_b"), ("a_by_k", "b_by_k"))
"""Pairs of them that are exchanged where operands are swapped."""

_UNALIGNED = ("m", "across", "batch", "of_a", "pitch_a", "residues", "repacking_us")
"""Numbers that differ from configuration to configuration where the kernel does not take a problem as it is."""


def _problem_numbers(seen: Problem) -> FloatArray:
    """A number for each of `_OF_PROBLEM`: of a problem whose operands are not swapped."""
    a, b, d = seen.a, seen.b, seen.d
    return np.array((
        seen.m, seen.n, max(seen.k, 1), seen.batch, *seen.operand_matrices, pitch_bytes(a), pitch_bytes(b),
        pitch_bytes(d), a.major == "row", b.major == "col", d.major == "col", residue_classes.d_is_aligned(seen),
        tiles.store_width(seen), a.dtype.bits, d.dtype.bits, seen.reads_matrix_c, type_index(seen),
    ), float)  # fmt: skip


@lru_cache(maxsize=16)
def _predictions(model: Model, unaligned: bool) -> Predictions:
    """A model's predictions for configurations of one problem."""
    columns = (*_NUMBERS, *(f"{name} here" for name in _UNALIGNED if unaligned))
    return model.formulas(_launches, columns, _OF_PROBLEM)


def _launches(of: Mapping[str, Any]) -> Launches:
    """What predictions depend on, of configurations and numbers of a problem by name."""
    swapped = of["SWAP"] == 1
    seen: dict[str, Any] = {}
    for one, other in _EXCHANGED:
        seen |= {one: np.where(swapped, of[other], of[one]), other: np.where(swapped, of[one], of[other])}
    seen |= {"across": seen["n"], "batch": of["batch"], "residues": 0.0, "repacking_us": 0.0}
    seen |= {name: of[f"{name} here"] for name in _UNALIGNED if f"{name} here" in of}
    down, across = ceil_div(seen["m"], of["BM"] * of["CM"]), ceil_div(seen["across"], of["BN"] * of["CN"])
    return Launches(
        bm=of["BM"], bn=of["BN"], bk=of["BK"], stages=of["STAGES"], consumers=of["CONSUMERS"], cm=of["CM"],
        cn=of["CN"], splits=of["SPLITS"], sms=of["SMS"], swap=of["SWAP"], overlap=of["OVERLAP"],
        pingpong=of["PINGPONG"], stream=of["STREAM"],
        cluster_k=np.where(of["meeting"] == _IN_CLUSTER, of["SPLITS"], 1.0), held=of["held"] / of["subtiles"],
        m=seen["m"], n=seen["n"], k=of["k"], batch=seen["batch"], tiles=down * across * seen["batch"],
        of_a=seen["of_a"], of_b=seen["of_b"], pitch_a=seen["pitch_a"], pitch_b=seen["pitch_b"], pitch_d=of["pitch_d"],
        a_by_k=seen["a_by_k"], b_by_k=seen["b_by_k"],
        d_by_column=np.where(swapped, 1 - of["d_by_column"], of["d_by_column"]), unaligned_a=of["unaligned_a"],
        by_tma=np.where((of["d_aligned"] == 1) | (seen["residues"] == 1), 1.0, 0.0), d_aligned=of["d_aligned"],
        residues=seen["residues"], store_width=of["store_width"], element_bits=of["element_bits"],
        d_bits=of["d_bits"], with_c=of["with_c"], type=of["type"], repacking_us=seen["repacking_us"],
    )  # fmt: skip


def _all_in(problem: Problem, rows: ConfigColumns) -> AllIn:
    """What adds to the times of some rows what surveys did not have: promotion in two levels, and an epilogue."""
    two_level, fused = tiles.two_level(problem), problem.epilogue
    if not two_level and fused is None:
        return lambda times_us, _: times_us
    formulas = _beside_surveys(block_scales.lines(problem) if two_level else None, fused is not None)
    work = (0.0, 0.0, 0) if fused is None else epilogue_cost.work_of(problem, fused)
    numbers = np.array((problem.m, problem.n, problem.k, problem.batch, *work), float)

    def all_in(times_us: FloatArray, places: Places) -> FloatArray:
        columns = np.empty((len(TUNABLES) + 1, len(times_us)))
        columns[:-1], columns[-1] = rows.numbers[: len(TUNABLES), places], times_us
        found: FloatArray = formulas(columns, numbers)[0]
        return found

    return all_in


@lru_cache(maxsize=32)
def _beside_surveys(lines: block_scales.Lines | None, fused: bool) -> Formulas:
    """Times with promotion, in two levels with these `block_scales.lines`, and with an epilogue, where there is one."""

    def evaluated(of: Mapping[str, Any]) -> tuple[Any]:
        times_us = of["times_us"]
        if lines is not None:
            times_us = times_us * promotion.factor_with(lines, of)
        if fused:
            work = epilogue_cost.EpilogueWork(*(of[name] for name in epilogue_cost.EpilogueWork._fields))
            extents = of["m"], of["n"], of["k"], of["batch"]
            times_us = times_us + epilogue_cost.added_by(work, extents, of, times_us)
        return (times_us,)

    numbers = ("m", "n", "k", "batch", *epilogue_cost.EpilogueWork._fields)
    return Formulas(evaluated, (*TUNABLES, "times_us"), numbers)


def _base() -> Config:
    """A configuration that takes no misaligned A and makes no residue classes."""
    return {**dict.fromkeys(TUNABLES, 1), "BM": 128, "BN": 128, "STREAM": 0, "PINGPONG": 0, "ALONG_N": 0, "SWAP": 0}


class _Unaligned:
    """What of a problem that the kernel does not take as it is depends on the configuration: which operands are
    repacked and how, and whether rows of D are split into residue classes.

    Args:
        problem: with an operand that has to be repacked, or a D that TMA cannot store.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        plain = tiles.view(problem, _base())
        self._views = [plain, plain.swapped]
        self._through = [tiles.may_take_unaligned_a(problem, swap) for swap in (0, 1)]
        self._classes = [residue_classes.residue_classes_of(view.problem) for view in self._views]
        self._repacks = [view.repacks or view.fused_repacks for view in self._views]
        self._may_fuse = [
            fused_repack.may_fit(
                view.problem, (view.a, view.b), repacks, stores_by_tma=residue_classes.d_is_aligned(view.problem)
            )
            for view, repacks in zip(self._views, self._repacks, strict=True)
        ]

    @property
    def seen(self) -> Problem:
        """The problem as the kernel sees it with operands as they are."""
        return self._views[0].problem

    def applicable(self, rows: ConfigColumns) -> ConfigColumns:
        """Those in which a misaligned A is loaded as the kernel does there; and others in square groups of tiles, where
        these let operands be repacked by the GEMM itself."""
        loaded = np.zeros(len(rows), np.bool_)
        for swap in (0, 1):
            if self._through[swap]:
                fits = tiles.loads_unaligned_a(self._views[swap].problem, rows.config)
                loaded |= (rows["SWAP"] == swap) & fits
        rows = rows.take(loaded == (rows["unaligned_a"] == 1))
        if not any(self._may_fuse):
            return rows
        square = rows.changed(GROUP=SQUARE_GROUP)
        gained = self._fused(square) & ~self._fused(rows)
        return ConfigColumns.joined(rows, square.take(gained)) if gained.any() else rows

    def _fused(self, rows: ConfigColumns) -> BoolArray:
        """Where the GEMM's own warps repack."""
        found = np.zeros(len(rows), np.bool_)
        for swap, (view, repacks) in enumerate(zip(self._views, self._repacks, strict=True)):
            if self._may_fuse[swap]:
                here = rows["SWAP"] == swap
                found |= here & fused_repack.schedule_allows(view.problem, (view.a, view.b), repacks, rows.config)
        return found

    def _repacking_us(self, rows: ConfigColumns) -> FloatArray:
        """Microseconds of repacking, in a pass of its own or fused."""
        fused, found = self._fused(rows), np.zeros(len(rows))
        for swap, repacks in enumerate(self._repacks):
            apart: Any = _pass_us(repacks)
            if self._through[swap]:
                rest = [each for each in repacks if each.source != "AB"[swap]]
                apart = np.where(rows["unaligned_a"] == 1, _pass_us(rest), apart)
            here = np.where(fused, 1e3 * fused_repacking_ms(repacks), apart) if self._may_fuse[swap] else apart
            found = np.where(rows["SWAP"] == swap, here, found)
        return found

    def as_seen(self, rows: ConfigColumns) -> FloatArray:
        """A row for each of `_UNALIGNED`."""
        plain, swapped = (view.problem for view in self._views)
        turned, through = rows["SWAP"] == 1, rows["unaligned_a"] == 1
        m, n = np.where(turned, swapped.m, plain.m), np.where(turned, swapped.n, plain.n)
        of_a = np.where(turned, swapped.operand_matrices[0], plain.operand_matrices[0])
        in_place = np.where(turned, pitch_bytes(self._problem.b), pitch_bytes(self._problem.a))
        pitch_a = np.where(through, in_place, np.where(turned, pitch_bytes(swapped.a), pitch_bytes(plain.a)))
        across, batch, residues = n, np.full(len(rows), plain.batch), np.zeros(len(rows), np.bool_)
        for swap, classes in enumerate(self._classes):
            if classes is not None:
                split = (rows["SWAP"] == swap) & ~through & residue_classes.schedule_allows(rows.config)
                split &= residue_classes.few_spare_rows(classes.m, rows.config)
                m, batch = np.where(split, classes.m, m), np.where(split, classes.batch, batch)
                across = np.where(split, n + residue_classes.columns_before(classes), across)
                of_a, residues = np.where(split, classes.batch, of_a), residues | split
        return np.array([m, across, batch, of_a, pitch_a, residues, self._repacking_us(rows)], float)


def _pass_us(repacks: Any) -> float:
    return 1e3 * repacking_ms(repacks)
