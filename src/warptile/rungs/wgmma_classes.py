"""Matrices whose rows lie badly, taken by TMA all the same, as wgmma-final does.

Rows that are `CLASSES` apart begin equally far from a multiple of 16 bytes. So the kernel sees a batch: matrix q has
the rows of A and of D whose remainder by `CLASSES` is q, and B is everyone's.

* D lies badly: the tiles of a matrix begin as many columns before its first one, so that each box of D begins at a
  multiple of 16 bytes; of B they need columns from there on, which are lines of its boxes. What lies partly outside D,
  at the ends of its rows, is stored by element.
* A lies badly: the boxes of a matrix begin at the multiple of 16 bytes before its rows, and those of B as many lines
  before its first one: lines run along N, for which B is copied transposed where it lies badly as well. A is not
  copied.
"""

from __future__ import annotations

from dataclasses import replace

from warptile.problem import MAX_ALIGNMENT_BYTES, Problem
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Config

CLASSES = 8
"""Rows of 16-bit elements that are so many apart begin equally far from a multiple of 16 bytes."""

MANY_COLUMNS, MOST_COLUMNS_OF_A = 1024, 6144
"""Of D, least in classes: with fewer much of D would be at the ends of rows. And most in classes of A: with more, a
copy of A takes a smaller part of the time than is lost otherwise, some 5 % at 4096^3 on an H200."""

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
    return stored_whole(seen) or d_in_classes(seen, config)


def d_in_classes(seen: Problem, config: Config) -> bool:
    """Whether the matrices of the batch that the kernel sees are classes of rows of one D that lies badly."""
    if seen.batch != CLASSES or seen.d.leading_dimension != CLASSES * seen.d.batch_stride or stored_whole(seen):
        return False
    if seen.b.batch_stride or seen.b.major != "col" or seen.c is not None or not seen.k or seen.n < MANY_COLUMNS:
        return False
    if config["OVERLAP"] or config["STREAM"] or config["SPLITS"] > 1 or config["CM"] * config["CN"] > MOST_BLOCKS:
        return False
    return seen.d.major == "row" and seen.d.dtype.bits in (16, 32)


def a_in_classes(seen: Problem) -> bool:
    """Whether they are classes of rows of one A that lies badly: a batch has no other A that does."""
    return seen.batch == CLASSES and seen.a.alignment_bytes < MAX_ALIGNMENT_BYTES


def takes_a_in_classes(problem: Problem, config: Config) -> bool:
    """Whether rows of A, which lie badly, are taken so: in tiles whose stores overlap, and where that saves a copy."""
    a, b = problem.a, problem.b
    if "SPLITS" not in config or problem.batch > 1 or a.sparse or a.dtype.bits != 16 or problem.c is not None:
        return False
    if a.alignment_bytes == MAX_ALIGNMENT_BYTES or a.major != "row" or problem.d.major != "row" or not problem.k:
        return False
    if b.major == "col" and b.alignment_bytes == MAX_ALIGNMENT_BYTES:
        return False
    if not config["OVERLAP"] or config["CM"] * config["CN"] > 1:
        return False
    return MANY_COLUMNS <= problem.n <= MOST_COLUMNS_OF_A and _filled(problem.m, config)


def in_classes(seen: Problem, config: Config) -> Problem:
    """The same product as a batch of classes of rows of D; as it is where that is not possible or of no use."""
    if "SPLITS" not in config or seen.batch > 1 or seen.m % CLASSES or seen.a.sparse:
        return seen
    if seen.a.major != "row" or seen.a.alignment_bytes < MAX_ALIGNMENT_BYTES or not _filled(seen.m, config):
        return seen
    classes = as_batch(seen)
    return classes if d_in_classes(classes, config) else seen


def as_batch(seen: Problem) -> Problem:
    """The same product as a batch of classes of rows. TMA cannot store classes of which some have a row less: there D
    is seen as one that lies badly."""
    a, d = seen.a, seen.d
    if seen.m % CLASSES:
        d = replace(d, alignment_bytes=min(d.alignment_bytes, MAX_ALIGNMENT_BYTES // 2))
    return replace(
        seen,
        m=ceil_div(seen.m, CLASSES),
        a=replace(a, leading_dimension=CLASSES * a.leading_dimension, batch_stride=a.leading_dimension),
        d=replace(d, leading_dimension=CLASSES * d.leading_dimension, batch_stride=d.leading_dimension),
        batch=CLASSES,
    )


def _filled(m: int, config: Config) -> bool:
    """Whether classes of all rows fill their tiles."""
    rows, tile = ceil_div(m, CLASSES), config["BM"] * config["CM"]
    return ceil_div(rows, tile) * tile - rows <= MOST_SPARE_ROWS * rows


def columns(seen: Problem, config: Config) -> int:
    """Columns that tiles have to cover: those of D and, of classes of D, what the first tile has before them."""
    return seen.n + (MAX_ALIGNMENT_BYTES * 8 // seen.d.dtype.bits - 1 if d_in_classes(seen, config) else 0)
