"""All tiles of wgmma-final for a problem, with their stages and splits of K, and the predicted time of each, at once.

What does not depend on extents (how many stages fit, what a mainloop iteration and an epilogue cost) is worked out once
for all problems of a kind and all tiles; a problem then takes some dozens of array operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.arch import H200
from warptile.device import DeviceLimits
from warptile.dtypes import DTYPES
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand, Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import ceil_div
from warptile.rungs.repack import fused_repacking_ms, repacking_ms
from warptile.rungs.rung import Extents
from warptile.rungs.tma import MAX_BOX
from warptile.rungs.wgmma import epilogue, fused_repack, residue_classes, tiles
from warptile.rungs.wgmma.cost import SeenExtents, TileCosts, resources_us, tile_costs, together_us
from warptile.rungs.wgmma.tile_shapes import (
    COOPERATIVE,
    FEWEST_STAGES,
    MOST_ROWS,
    MOST_ROWS_BYTES,
    OTHER_SCHEDULES,
    SQUARE_GROUP,
    TUNABLES,
    Shape,
    cluster_tiles,
    even_splits,
    fewest_sms,
    shapes,
    stages_beside,
)
from warptile.rungs.wgmma.tiles import ROW_BYTES, WIDEST, WIDEST_OVERLAPPED

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_NUMBERS = (*TUNABLES, "unaligned_a", "stage_bytes", "order")
_PLACE = {name: place for place, name in enumerate(_NUMBERS)}

_OF_A_SHAPE, _OF_A_K_EXTENT, _OVERLAPPED, _SQUARE = 1000, 100, 50, 51
"""``order``: of equal times, tiles are taken as listed, then K extents, then whole, split, overlapped, in square
groups."""

_COSTS = H200.wgmma_costs
_CLOCKS = tuple(TileCosts.__dataclass_fields__)


@dataclass(frozen=True)
class ConfigColumns:
    """Configurations, a column for each.

    Attributes:
        numbers: tunables, whether a misaligned A is loaded through registers, bytes of a stage, and `order`.
        clocks: the fields of `TileCosts`.
    """

    numbers: IntArray
    clocks: FloatArray

    def __getitem__(self, name: str) -> IntArray:
        row: IntArray = self.numbers[_PLACE[name]]
        return row

    @cached_property
    def config(self) -> Mapping[str, IntArray]:
        """The tunables by name."""
        return dict(zip(TUNABLES, self.numbers, strict=False))

    @property
    def costs(self) -> TileCosts:
        """What tiles cost whatever the extents."""
        return TileCosts(*self.clocks)

    def take(self, places: IntArray | BoolArray) -> ConfigColumns:
        """Some of them, as a copy."""
        return ConfigColumns(self.numbers[:, places], self.clocks[:, places])

    def changed(self, **values: Any) -> ConfigColumns:
        """The same with other numbers."""
        numbers = self.numbers.copy()
        for name, value in values.items():
            numbers[_PLACE[name]] = value
        return ConfigColumns(numbers, self.clocks)

    @staticmethod
    def joined(*several: ConfigColumns) -> ConfigColumns:
        """All of them."""
        return ConfigColumns(
            np.concatenate([each.numbers for each in several], axis=1),
            np.concatenate([each.clocks for each in several], axis=1),
        )


@dataclass(frozen=True)
class Pool:
    """Configurations and their predicted times in microseconds."""

    rows: ConfigColumns
    times_us: FloatArray

    def config(self, place: int) -> Config:
        """One of the configurations."""
        return dict(zip(TUNABLES, self.rows.numbers[:, place].tolist(), strict=False))

    def ranked(self) -> IntArray:
        """Places in order of predicted time."""
        return np.lexsort((self.rows["order"], self.times_us))

    def __iter__(self) -> Iterator[tuple[float, Config]]:
        """Predicted times and configurations, in order of tiles."""
        for place in np.argsort(self.rows["order"]):
            yield float(self.times_us[place]), self.config(int(place))

    def joined(self, other: Pool) -> Pool:
        """These and others."""
        return Pool(ConfigColumns.joined(self.rows, other.rows), np.concatenate((self.times_us, other.times_us)))


def pool(problem: Problem, device: DeviceLimits, of: Sequence[Shape] | None = None) -> Pool:
    """Every tile that is not mostly padding, with every K extent of a stage and every split of K; ``of`` these tiles,
    by default of all that are worth a look. The kernel must take the problem's types."""
    table, extents = _table_of(problem), ((problem.m, problem.n), (problem.n, problem.m))
    places = []
    for shape in shapes(problem, device) if of is None else of:
        bm, bn, _, swap = shape
        m, n = extents[swap]
        if (bm <= 64 or bm < 2 * m) and (bn <= 16 or bn < 2 * n):
            places.append(table.places[shape])
    rows = table.rows.take(np.concatenate(places))
    rows["order"][:] += np.repeat(np.arange(len(places)) * _OF_A_SHAPE, [len(each) for each in places])
    rows["SMS"][:] = fewest_sms(_extents(problem), rows.config, device)
    situation = None if tiles.is_aligned(problem) else _Unaligned(problem)
    if situation is not None:
        rows = situation.applicable(rows)
    found = _evaluated(problem, rows, device, situation)
    whole = rows["OVERLAP"] == 0
    split = _split(problem, rows.take(whole), device)
    return found if split is None else found.joined(_evaluated(problem, split, device, situation))


def other_schedules(problem: Problem, found: Pool, best: IntArray, device: DeviceLimits) -> Pool:
    """Configurations of a pool in other schedules: clusters, stream-K, ping-pong. Each behind all of the pool, where
    times are equal."""
    rows = found.rows.take(best)
    turns = np.flatnonzero((rows["CONSUMERS"] == 2) & (rows["SPLITS"] == 1))
    ranks = [turns if "PINGPONG" in change else np.arange(len(best)) for change in OTHER_SCHEDULES]
    several = [rows.take(rank).changed(**change) for rank, change in zip(ranks, OTHER_SCHEDULES, strict=True)]
    made = ConfigColumns.joined(*several)
    after = 1 + int(found.rows["order"].max(initial=0))
    number = len(OTHER_SCHEDULES)
    made["order"][:] = after + np.concatenate([number * rank + place for place, rank in enumerate(ranks)])
    made["SMS"][:] = fewest_sms(_extents(problem), made.config, device)
    through = made["unaligned_a"] == 1
    if through.any():  # they do not load a misaligned A through registers
        made["unaligned_a"][:] = 0
        costs = tile_costs(problem, made.config, 0.0, _COSTS, unaligned_a=False)
        made.clocks[:, through] = np.array(np.broadcast_arrays(*_fields(costs)))[:, through]
    situation = None if tiles.is_aligned(problem) else _Unaligned(problem)
    return _evaluated(problem, made, device, situation, by_class=False)


# --- what does not depend on extents ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """All tiles for problems of one kind, with every K extent: basic, with a misaligned A through registers, and with
    overlapped stores.

    Attributes:
        places: the rows of each tile.
        rows: all of them.
    """

    places: Mapping[Shape, IntArray]
    rows: ConfigColumns


def _table_of(problem: Problem) -> _Table:
    a, b, d = problem.a, problem.b, problem.d
    return _table(
        a.dtype.name, problem.accumulator.name, d.dtype.name, a.major, b.major,
        a.alignment_bytes == MAX_ALIGNMENT_BYTES, b.alignment_bytes == MAX_ALIGNMENT_BYTES,
        residue_classes.d_is_aligned(problem), problem.batch == 1,
    )  # fmt: skip


def _all_shapes() -> list[Shape]:
    columns = range(8, MAX_BOX + 1, 8)
    found: list[Shape] = [(bm, bn, bm // 64, swap) for bm in (64, 128) for swap in (0, 1) for bn in columns]
    return found + [(bm, bn, 2, 0) for bm, bn in COOPERATIVE if bm > 128]


@lru_cache(maxsize=64)
def _table(
    element: str, accumulator: str, output: str, a_major: str, b_major: str, a_aligned: bool, b_aligned: bool,
    d_aligned: bool, single: bool,
) -> _Table:  # fmt: skip
    problem = Problem.dense(
        64, 64, 4096, DTYPES[element], out=DTYPES[output], accumulator=DTYPES[accumulator], a_major=a_major,
        b_major=b_major, batch=1 if single else 2,
    )  # fmt: skip

    def aligned(operand: Operand, holds: bool) -> Operand:
        return replace(operand, alignment_bytes=MAX_ALIGNMENT_BYTES if holds else max(1, operand.dtype.bits // 8))

    problem = replace(
        problem, a=aligned(problem.a, a_aligned), b=aligned(problem.b, b_aligned), d=aligned(problem.d, d_aligned)
    )
    numbers: list[tuple[int, ...]] = []
    places: dict[Shape, IntArray] = {}
    seen = [tiles.view(problem, _overlapped_base(swap)).problem for swap in (0, 1)]
    through = [tiles.may_take_unaligned_a(tiles.swapped(problem) if swap else problem) for swap in (0, 1)]
    row_elements = ROW_BYTES * 8 // problem.a.dtype.bits
    for shape in _all_shapes():
        bm, bn, consumers, swap = shape
        first = len(numbers)
        for number, k_rows in enumerate((1, 2, MOST_ROWS)):
            if k_rows == 1 or bm * bn <= MOST_ROWS_BYTES:
                for overlap, unaligned in ((0, 0), (0, 1), (1, 0))[:: 1 if through[swap] else 2]:
                    order = number * _OF_A_K_EXTENT + overlap * _OVERLAPPED
                    numbers.append((bm, bn, k_rows * row_elements, consumers, swap, overlap, unaligned, order))
        places[shape] = np.arange(first, len(numbers))
    bm, bn, bk, consumers, swap, overlap, unaligned, order = np.array(numbers, np.int64).T
    one, zero = np.ones_like(bm), np.zeros_like(bm)
    columns = {
        "BM": bm, "BN": bn, "BK": bk, "STAGES": one, "CONSUMERS": consumers, "PINGPONG": zero, "CM": one, "CN": one,
        "GROUP": 8 * one, "ALONG_N": zero, "OVERLAP": overlap, "STREAM": zero, "SPLITS": one, "SWAP": swap, "SMS": one,
        "unaligned_a": unaligned, "stage_bytes": zero, "order": order,
    }  # fmt: skip
    rows = ConfigColumns(
        np.array([columns[name] for name in _NUMBERS]), np.zeros((len(TileCosts.__dataclass_fields__), len(bm)))
    )
    keep = np.zeros(len(bm), np.bool_)
    for of_swap in (0, 1):
        for of_unaligned in (0, 1):
            for of_overlap in (0, 1):
                chosen = (swap == of_swap) & (unaligned == of_unaligned) & (overlap == of_overlap)
                if chosen.any():
                    keep[chosen] = _filled(rows, chosen, seen[of_swap], bool(of_unaligned), bool(of_overlap))
    kept = np.cumsum(keep) - 1
    return _Table({shape: kept[each[keep[each]]] for shape, each in places.items()}, rows.take(keep))


def _overlapped_base(swap: int) -> Config:
    """A configuration that takes no misaligned A and makes no residue classes."""
    return {**dict.fromkeys(TUNABLES, 1), "BM": 128, "BN": 128, "STREAM": 0, "PINGPONG": 0, "ALONG_N": 0, "SWAP": swap}


def _filled(rows: ConfigColumns, chosen: BoolArray, seen: Problem, unaligned_a: bool, overlap: bool) -> BoolArray:
    """Fill in stages, their bytes and costs of some rows of one SWAP; which of them are worth a look."""
    some = rows.take(chosen)
    config = some.config
    subtile = _subtiles(seen, config, overlap)
    stage_bytes = tiles.stage_bytes(seen, config, unaligned_a=unaligned_a)
    stages = stages_beside(config["CONSUMERS"] * epilogue.buffer_bytes(subtile), stage_bytes)
    rows.numbers[_PLACE["STAGES"], chosen] = np.maximum(stages, 2)
    rows.numbers[_PLACE["stage_bytes"], chosen] = stage_bytes
    config = {**config, "STAGES": np.maximum(stages, 2)}
    count, held, _ = epilogue.held_subtiles(subtile, seen, config)
    costs = tile_costs(seen, config, held / count if overlap else 0.0, _COSTS, unaligned_a=unaligned_a)
    rows.clocks[:, chosen] = np.array(np.broadcast_arrays(*_fields(costs)))
    worth: BoolArray = stages >= FEWEST_STAGES
    if not overlap:
        return worth
    basic = _subtiles(seen, config, False)
    worth = stages_beside(config["CONSUMERS"] * epilogue.buffer_bytes(basic), stage_bytes) >= FEWEST_STAGES
    worth &= held > 0
    return worth


def _subtiles(seen: Problem, config: Mapping[str, IntArray], overlap: bool) -> epilogue.SubtileArrays:
    widest = 0 if not residue_classes.d_is_aligned(seen) else WIDEST_OVERLAPPED if overlap else WIDEST
    bytes_of_d = seen.d.dtype.bits // 8
    return epilogue.SubtileArrays.of(bytes_of_d, config["BN"], column_major=seen.d.major == "col", widest=widest)


def _fields(costs: TileCosts) -> tuple[Any, ...]:
    """As `dataclasses.astuple`, which would copy arrays."""
    return tuple(getattr(costs, name) for name in _CLOCKS)


# --- what does ----------------------------------------------------------------------------------------------------


def _evaluated(
    problem: Problem, rows: ConfigColumns, device: DeviceLimits, unaligned: _Unaligned | None, *, by_class: bool = True
) -> Pool:
    """Predicted times of configurations; ``by_class``: rows of a misaligned D are split into residue classes."""
    config, swap = rows.config, rows["SWAP"] == 1
    first, second = problem.operand_matrices
    of_a, of_b = np.where(swap, second, first), np.where(swap, first, second)
    m, n = np.where(swap, problem.n, problem.m), np.where(swap, problem.m, problem.n)
    batch: Any = problem.batch
    columns, repacking = n, np.zeros(())
    if unaligned is not None:
        repacking = unaligned.repacking_us(rows)
        if by_class:
            m, columns, batch, of_a = unaligned.as_seen(rows, m, n, of_a)
    cluster_k: Any = 1
    if rows["SPLITS"].max(initial=1) > 1:
        count = ceil_div(m, config["BM"] * config["CM"]) * ceil_div(columns, config["BN"] * config["CN"]) * batch
        fits = tiles.reduces_in_cluster(problem, config, count, rows["stage_bytes"], device)
        cluster_k = np.where(fits, rows["SPLITS"], 1)
    extents = SeenExtents(m, n, problem.k, batch, columns, of_a, of_b)
    found = resources_us(problem, extents, config, rows.costs, cluster_k, _COSTS)
    return Pool(rows, together_us(found, _COSTS) + repacking)


def _extents(problem: Problem) -> Extents:
    return problem.m, problem.n, problem.k, problem.batch


def _split(problem: Problem, rows: ConfigColumns, device: DeviceLimits) -> ConfigColumns | None:
    """The same tiles with K in parts; None if no tile leaves SMs for that."""
    count = cluster_tiles(_extents(problem), rows.config)
    of, place, splits = even_splits(count, ceil_div(problem.k, rows["BK"]), device)
    if not len(of):
        return None
    made = rows.take(of)
    made["SPLITS"][:] = splits
    made["SMS"][:] = device.sms
    made["order"][:] += 1 + place
    return made


class _Unaligned:
    """What of a problem that the kernel does not take as it is depends on the configuration: which operands are
    repacked and how, and whether rows of D are split into residue classes.

    Args:
        problem: with an operand that has to be repacked, or a D that TMA cannot store.
    """

    def __init__(self, problem: Problem) -> None:
        self._views = [tiles.view(problem, _overlapped_base(swap)) for swap in (0, 1)]
        self._through = [tiles.may_take_unaligned_a(tiles.swapped(problem) if swap else problem) for swap in (0, 1)]
        self._classes = [residue_classes.residue_classes_of(view.problem) for view in self._views]
        self._repacks = [view.repacks or view.fused_repacks for view in self._views]

    def applicable(self, rows: ConfigColumns) -> ConfigColumns:
        """Those in which a misaligned A is loaded as the kernel does there; and others in square groups of tiles, where
        these let operands be repacked by the GEMM itself."""
        config = rows.config
        basic = {**config, "OVERLAP": np.zeros_like(rows["OVERLAP"])}
        loaded = np.zeros(len(rows["BM"]), np.bool_)
        for swap in (0, 1):
            if self._through[swap]:
                fits = tiles.loads_rows_of_a(self._views[swap].problem.n, basic)
                loaded |= (rows["SWAP"] == swap) & fits
        rows = rows.take((rows["OVERLAP"] == 1) | (loaded == (rows["unaligned_a"] == 1)))
        square = rows.changed(GROUP=SQUARE_GROUP, order=rows["order"] + _SQUARE - _OVERLAPPED)
        gained = self._fused(square) & ~self._fused(rows)
        return ConfigColumns.joined(rows, square.take(gained)) if gained.any() else rows

    def _fused(self, rows: ConfigColumns) -> BoolArray:
        """Where the GEMM's own warps repack."""
        found = np.zeros(len(rows["BM"]), np.bool_)
        for swap, view in enumerate(self._views):
            names, repacks = (view.a, view.b), self._repacks[swap]
            by_tma = residue_classes.d_is_aligned(view.problem)
            if fused_repack.may_fit(view.problem, names, repacks, stores_by_tma=by_tma):
                here = rows["SWAP"] == swap
                found |= here & fused_repack.schedule_allows(view.problem, names, repacks, rows.config)
        return found

    def repacking_us(self, rows: ConfigColumns) -> FloatArray:
        """Microseconds of repacking, in a pass of its own or fused."""
        fused, found = self._fused(rows), np.zeros(len(rows["BM"]))
        for swap, repacks in enumerate(self._repacks):
            rest = [each for each in repacks if each.source != "AB"[swap]]
            apart = np.where(rows["unaligned_a"] == 1, _pass_us(rest), _pass_us(repacks))
            here = np.where(fused, 1e3 * fused_repacking_ms(repacks), apart)
            found = np.where(rows["SWAP"] == swap, here, found)
        return found

    def as_seen(
        self, rows: ConfigColumns, m: IntArray, n: IntArray, of_a: IntArray
    ) -> tuple[IntArray, IntArray, Any, IntArray]:
        """M, columns that tiles cover, batch and matrices of A, where rows of D are split into residue classes."""
        columns, batch = n, np.full_like(m, self._views[0].problem.batch)
        for swap, classes in enumerate(self._classes):
            if classes is not None:
                split = (rows["SWAP"] == swap) & (rows["unaligned_a"] == 0)
                split &= residue_classes.schedule_allows(rows.config)
                split &= residue_classes.few_spare_rows(classes.m, rows.config)
                m, batch = np.where(split, classes.m, m), np.where(split, classes.batch, batch)
                columns = np.where(split, n + residue_classes.columns_before(classes), columns)
                of_a = np.where(split, classes.batch, of_a)
        return m, columns, batch, of_a


def _pass_us(repacks: Any) -> float:
    return 1e3 * repacking_ms(repacks)
