"""Storing a D whose rows are misaligned by TMA, as wgmma-final does.

Rows whose indices differ by a multiple of `RESIDUE_CLASSES` are equally far from a multiple of 16 bytes. The kernel
therefore computes a batch: matrix q has the rows of A and D whose index is q modulo `RESIDUE_CLASSES`, and all of them
share B. The tiles of a matrix start as many columns before its first one as it takes to bring every box of D to a
multiple of 16 bytes, so the columns of B that they load start there too. Elements of boxes that reach over an end of a
row of D are stored one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from warptile.problem import MAX_ALIGNMENT_BYTES, Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import ceil_div

RESIDUE_CLASSES = 8
"""Rows of 16-bit elements whose indices agree modulo this have the same misalignment."""

LEAST_COLUMNS = 1024
"""Columns of D from which rows are split into residue classes: with fewer, too much of D is at the ends of rows."""

MOST_CTAS = 2
"""CTAs of a cluster with residue classes. With four, the producer, which also computes where tiles start, spills."""

MOST_SPARE_ROWS = 1 / 8
"""Share of the rows of a residue class that its tiles may have beyond them."""


def d_is_aligned(seen: Problem) -> bool:
    """Whether TMA can store D: it clips lines to multiples of 16 bytes, so lines must be whole multiples."""
    line = seen.n if seen.d.major == "row" else seen.m
    return seen.d.alignment_bytes == MAX_ALIGNMENT_BYTES and line * seen.d.dtype.bits // 8 % MAX_ALIGNMENT_BYTES == 0


def stores_by_tma(seen: Problem, config: Config) -> bool:
    """Whether TMA stores D, as it is or by residue class."""
    return d_is_aligned(seen) or by_residue_class(seen, config)


def by_residue_class(seen: Problem, config: Config) -> bool:
    """Whether the matrices of the batch that the kernel computes are residue classes of rows of one D."""
    return may_be_residue_classes(seen) and bool(schedule_allows(config))


def schedule_allows(config: Mapping[str, Any]) -> Any:
    """Whether the schedule takes residue classes: of one configuration, or of an array of each tunable."""
    plain = (config["OVERLAP"] == 0) & (config["STREAM"] == 0) & (config["SPLITS"] <= 1)
    return plain & (config["CM"] * config["CN"] <= MOST_CTAS)


def few_spare_rows(rows: int, config: Mapping[str, Any]) -> Any:
    """Whether tiles hardly reach beyond the ``rows`` of a residue class: of one configuration, or of arrays."""
    tile = config["BM"] * config["CM"]
    return ceil_div(rows, tile) * tile - rows <= MOST_SPARE_ROWS * rows


def may_be_residue_classes(seen: Problem) -> bool:
    """Whether the matrices of a batch are residue classes of rows of one D that some schedule takes as such."""
    if seen.batch != RESIDUE_CLASSES or d_is_aligned(seen):
        return False
    if seen.d.leading_dimension != RESIDUE_CLASSES * seen.d.batch_stride:
        return False
    if seen.epilogue is not None:  # its operands go with rows of D
        return False
    if seen.b.batch_stride or seen.b.major != "col" or seen.c is not None or not seen.k or seen.n < LEAST_COLUMNS:
        return False
    return seen.d.major == "row" and seen.d.dtype.bits in (16, 32)


def split_by_residue_class(seen: Problem, config: Config) -> Problem:
    """The GEMM as a batch of residue classes of rows; unchanged where the kernel cannot do that or gains nothing."""
    batch = residue_classes_of(seen) if "SPLITS" in config else None
    return batch if batch is not None and schedule_allows(config) and few_spare_rows(batch.m, config) else seen


def residue_classes_of(seen: Problem) -> Problem | None:
    """The GEMM as a batch of residue classes of rows, or None where no schedule takes it so."""
    if seen.batch > 1 or seen.m % RESIDUE_CLASSES or d_is_aligned(seen):
        return None
    if seen.a.major != "row" or seen.a.alignment_bytes < MAX_ALIGNMENT_BYTES:
        return None
    batch = _residue_classes(seen)
    return batch if may_be_residue_classes(batch) else None


@lru_cache(maxsize=64)  # planning asks for hundreds of configurations of one problem
def _residue_classes(seen: Problem) -> Problem:
    a, d, rows = seen.a, seen.d, seen.m // RESIDUE_CLASSES
    return replace(
        seen,
        m=rows,
        a=replace(a, leading_dimension=RESIDUE_CLASSES * a.leading_dimension, batch_stride=a.leading_dimension),
        d=replace(d, leading_dimension=RESIDUE_CLASSES * d.leading_dimension, batch_stride=d.leading_dimension),
        batch=RESIDUE_CLASSES,
    )


def columns(seen: Problem, config: Config) -> int:
    """Columns that tiles cover: those of D and, by residue class, those before the first one of each matrix."""
    return seen.n + (columns_before(seen) if by_residue_class(seen, config) else 0)


def columns_before(seen: Problem) -> int:
    """Most columns by which tiles start before the first one of a residue class."""
    return MAX_ALIGNMENT_BYTES * 8 // seen.d.dtype.bits - 1
