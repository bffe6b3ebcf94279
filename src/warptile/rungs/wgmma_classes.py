"""A D whose rows lie badly, stored by TMA all the same, as wgmma-final does.

Rows that are `CLASSES` apart begin equally far from a multiple of 16 bytes. So the kernel sees a batch: matrix q has
the rows of A and of D whose remainder by `CLASSES` is q, and B is everyone's. The tiles of a matrix begin as many
columns before its first one, so that each box of D begins at a multiple of 16 bytes; of B they need columns from there
on, which are lines of its boxes. What lies partly outside D, at the ends of its rows, is stored by element.
"""

from __future__ import annotations

from dataclasses import replace

from warptile.problem import MAX_ALIGNMENT_BYTES, Problem
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Config

CLASSES = 8
"""Rows of 16-bit elements that are so many apart begin equally far from a multiple of 16 bytes."""

MANY_COLUMNS = 1024
"""Of D, least in classes: with fewer much of D would be at the ends of rows."""

MOST_BLOCKS = 2
"""Of a cluster; with four the producer, which also works out where tiles begin, runs out of registers."""

MOST_SPARE_ROWS = 1 / 8
"""Of a class, that its tiles may have beyond it, as a part of its own."""


def stored_whole(seen: Problem) -> bool:
    """Whether TMA may store D as it lies: it clips lines to 16 bytes, so lines must be whole ones."""
    line = seen.n if seen.d.major == "row" else seen.m
    return seen.d.alignment_bytes == MAX_ALIGNMENT_BYTES and line * seen.d.dtype.bits // 8 % MAX_ALIGNMENT_BYTES == 0


def by_tma(seen: Problem, config: Config) -> bool:
    """Whether TMA stores D."""
    return stored_whole(seen) or in_classes(seen, config)


def in_classes(seen: Problem, config: Config) -> bool:
    """Whether the matrices of the batch that the kernel sees are classes of rows of one D."""
    if seen.batch != CLASSES or seen.d.leading_dimension != CLASSES * seen.d.batch_stride or stored_whole(seen):
        return False
    if seen.b.batch_stride or seen.b.major != "col" or seen.c is not None or not seen.k or seen.n < MANY_COLUMNS:
        return False
    if config["OVERLAP"] or config["STREAM"] or config["SPLITS"] > 1 or config["CM"] * config["CN"] > MOST_BLOCKS:
        return False
    return seen.d.major == "row" and seen.d.dtype.bits in (16, 32)


def as_classes(seen: Problem, config: Config) -> Problem:
    """The same product as a batch of classes of rows; as it is where that is not possible or of no use."""
    if "SPLITS" not in config or seen.batch > 1 or seen.m % CLASSES or stored_whole(seen):
        return seen
    if seen.a.major != "row" or seen.a.alignment_bytes < MAX_ALIGNMENT_BYTES:
        return seen
    a, d, rows = seen.a, seen.d, seen.m // CLASSES
    classes = replace(
        seen,
        m=rows,
        a=replace(a, leading_dimension=CLASSES * a.leading_dimension, batch_stride=a.leading_dimension),
        d=replace(d, leading_dimension=CLASSES * d.leading_dimension, batch_stride=d.leading_dimension),
        batch=CLASSES,
    )
    tile = config["BM"] * config["CM"]
    spare_rows = ceil_div(rows, tile) * tile - rows
    return classes if in_classes(classes, config) and spare_rows <= MOST_SPARE_ROWS * rows else seen


def columns(seen: Problem, config: Config) -> int:
    """Columns that tiles have to cover: those of D and, of classes, what the first tile has before them."""
    return seen.n + (MAX_ALIGNMENT_BYTES * 8 // seen.d.dtype.bits - 1 if in_classes(seen, config) else 0)
