"""What a CTA does for one K tile: counted by Nsight Compute where the kernel was measured, else by formula.

Machine code has more instructions than formulas count, and ``cp.async`` into padded rows more wavefronts. For a kernel
that was not counted, those of its rung are scaled: as much over the formulas as the rung's first kernel that was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warptile.arch import H200
from warptile.expected.time_constants import KernelWork
from warptile.planning.cost_bounds import fragment_k, k_tile_work, operand_reads, staging_copies
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Rung

TILE = ("BM", "BN", "BK", "WM", "WN", "TM", "TN", "FM", "FN", "FK", "PAD")
"""Tunables that decide how much a K tile takes; others decide when."""

LINE_BYTES, SECTOR_BYTES, WARP = 128, 32, 32


@dataclass(frozen=True)
class KTile:
    """What one CTA does for one K tile.

    Attributes:
        instructions: issued by all its warps.
        read_wavefronts: of fragment loads from shared memory.
        write_wavefronts: of stores to shared memory, and of ``cp.async`` without bank conflicts.
        requests: load instructions of global memory, of all warps; counted where fragments are not staged.
        lines: that global loads and ``cp.async`` look up in L1.
        bytes: requested of L2.
    """

    instructions: float
    read_wavefronts: float
    write_wavefronts: float
    requests: float
    lines: float
    bytes: float


def tile_of(config: Mapping[str, int]) -> dict[str, int]:
    """The tunables of `TILE`."""
    return {name: config[name] for name in TILE if name in config}


def measured_kernel(work: Sequence[KernelWork], rung: Rung, problem: Problem, config: Config) -> KernelWork | None:
    """The measured kernel with these tunables and types, or None."""
    tile, bits, accumulator = tile_of(config), problem.a.dtype.bits, problem.accumulator.name
    for each in work:
        if (each.rung, each.tile, each.element_bits, each.accumulator) == (rung.name, tile, bits, accumulator):
            return each
    return None


def k_tile(work: Sequence[KernelWork], rung: Rung, problem: Problem, config: Config) -> KTile:
    """What a CTA does for one K tile."""
    known = [each for each in work if each.rung == rung.name and each.instructions]
    formula = k_tile_by_formula(rung, problem, config)
    if not known:
        return formula
    same = [each for each in known if each.tile == tile_of(config) and each.element_bits == problem.a.dtype.bits]
    counted = (same or known)[0]
    if same:
        return KTile(counted.instructions, counted.read_wavefronts, counted.write_wavefronts, counted.requests,
                     counted.lines, counted.sectors * SECTOR_BYTES)  # fmt: skip
    beside = k_tile_by_formula(rung, problem, {**config, **counted.tile})

    def scaled(wanted: float, there: float, by_formula: float) -> float:
        return wanted * there / by_formula if by_formula else wanted

    return KTile(
        scaled(formula.instructions, counted.instructions, beside.instructions),
        scaled(formula.read_wavefronts, counted.read_wavefronts, beside.read_wavefronts),
        scaled(formula.write_wavefronts, counted.write_wavefronts, beside.write_wavefronts),
        scaled(formula.requests, counted.requests, beside.requests),
        scaled(formula.lines, counted.lines, beside.lines),
        scaled(formula.bytes, counted.sectors * SECTOR_BYTES, beside.bytes),
    )


def k_tile_by_formula(rung: Rung, problem: Problem, config: Config) -> KTile:
    """The same from tile sizes alone, by the formulas of `warptile.planning.cost_bounds`."""
    mechanism, bk = rung.mechanism, config.get("BK", fragment_k(rung, problem))
    elements = (mechanism.a_density * config["BM"] + config["BN"]) * bk
    copied = elements * problem.a.dtype.bytes
    work = k_tile_work(rung, problem, config, mechanism, H200)
    loads, reads = operand_reads(rung, problem, config, mechanism)
    if not mechanism.staged:
        return KTile(work.instructions, 0.0, 0.0, loads, reads, copied)
    _, writes = staging_copies(problem, mechanism, elements)
    if mechanism.by_tma:
        return KTile(work.instructions, reads, 0.0, 0.0, 0.0, copied)
    if mechanism.asynchronous:
        lines = _lines(problem, mechanism.a_density * config["BM"], bk, config)
        return KTile(work.instructions, reads, writes, 0.0, lines, copied)
    return KTile(work.instructions, reads, writes / 2, 0.0, writes / 2, copied)  # half of the passes are loads


def _lines(problem: Problem, rows_of_a: float, bk: int, config: Config) -> float:
    """Lines of a K tile: those of each of its rows in memory."""
    bits, bn = problem.a.dtype.bits, config["BN"]

    def of(rows: float, elements: int) -> float:
        return rows * ceil_div(elements * bits // 8, LINE_BYTES)

    of_a = of(rows_of_a, bk) if problem.a.major == "row" else of(bk, int(rows_of_a))
    return of_a + (of(bk, bn) if problem.b.major == "row" else of(bn, bk))
