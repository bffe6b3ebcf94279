"""Bytes that a rung moves at each memory level, from what Nsight Compute counted in one launch of it.

What is counted at 2048^3 is scaled to other extents of the same tiles: operands are read in proportion to M N K, D is
written in proportion to M N, and stream-K's partial accumulators do not grow. Levels:

* L1/shared: one data path of 128 bytes a clock in each SM. What takes it for a clock counts 128 bytes, however few of
  them are used: a wavefront of shared memory, and a line that a global load or store looks up in L1. What TMA writes
  or reads there counts its sectors.
* L2: sectors that SMs request and that reach them. A rung that stages its operands requests each sector once for each
  CTA, and L1 has nothing to serve again. One that reads fragments from global memory requests them often, and L1
  serves some: there each CTA's operands once are assumed, which is a prediction.
* DRAM: Nsight Compute's bytes where they were recorded for this problem and configuration, else the prediction of
  `warptile.planning.cost_bounds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warptile.arch import H200
from warptile.bench.profiling.ncu_metrics import HBM_BYTES, SECTOR_BYTES
from warptile.bench.protocol.measurements import LadderCell, Profile
from warptile.bench.protocol.workloads import to_problem
from warptile.bench.report.record_lookup import RecordLookup
from warptile.device import REFERENCE
from warptile.measured import MeasuredTraffic
from warptile.planning.cost_bounds import Prediction, predict
from warptile.planning.plan import illegal
from warptile.problem import Problem
from warptile.roofline.intensity import tile_intensity
from warptile.roofline.published_gpus import DRAM, L2, SHARED
from warptile.rungs import RUNGS
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import blocks, ceil_div

SLOT_BYTES = 128
"""What the data path of L1 and shared memory moves at most in a clock."""

TILE = ("BM", "BN", "BK", "WM", "WN", "TM", "TN", "FM", "FN", "FK", "PAD", "CM", "CN", "CONSUMERS")
"""Tunables that decide how many bytes are moved; others decide when."""

STREAM_K = "wgmma-stream-k"
"""The rung whose loads and stores of global memory are partial accumulators."""


@dataclass(frozen=True)
class Moved:
    """Bytes of one level by what they grow with.

    Attributes:
        operands: read of A and B, in proportion to M N K.
        d: written of D, in proportion to M N.
        partial: accumulators of parts of a tile, written and read.
    """

    operands: float
    d: float
    partial: float = 0.0

    def at(self, counted: Problem, wanted: Problem) -> float:
        """Bytes on a problem of other extents, with the same tiles."""
        area = wanted.m * wanted.n / (counted.m * counted.n)
        return self.operands * area * wanted.k / counted.k + self.d * area + self.partial


def _slots(opcodes: Mapping[str, Mapping[str, float]], opcode: str) -> float:
    """Bytes of the data path that global accesses of one kind take: 128 for each line."""
    return SLOT_BYTES * opcodes.get(opcode, {}).get("l1_tag_requests", 0.0)


def moved(profile: Profile) -> dict[str, Moved]:
    """Bytes at L1/shared and L2 in a profiled launch."""
    counted = profile.counters.get
    tma_d = SECTOR_BYTES * (counted("tma_store_sectors", 0.0) + counted("tma_reduce_sectors", 0.0))
    tma_loads = SECTOR_BYTES * counted("tma_load_sectors", 0.0)
    loads = SECTOR_BYTES * counted("global_load_sectors", 0.0)
    stores = SECTOR_BYTES * counted("global_store_sectors", 0.0)
    load_slots, store_slots = _slots(profile.by_opcode, "LDG"), _slots(profile.by_opcode, "STG")
    kinds = ("shared_load", "shared_store", "shared_async_copy", "tensor_operand")
    staged = SLOT_BYTES * sum(counted(f"{kind}_wavefronts", 0.0) for kind in kinds) + tma_loads
    if profile.rung == STREAM_K:
        return {
            SHARED: Moved(staged, tma_d, load_slots + store_slots),
            L2: Moved(tma_loads, tma_d, loads + stores),
        }
    return {SHARED: Moved(staged + load_slots, tma_d + store_slots), L2: Moved(tma_loads + loads, tma_d + stores)}


def traffic(cell: LadderCell, lookup: RecordLookup) -> MeasuredTraffic | None:
    """Bytes of a measured rung by level, or None where its configuration lacks a tunable that the rung has now."""
    rung, problem = RUNGS[cell.rung], to_problem(cell.problem)
    tunables = rung.default_config(problem, REFERENCE).keys()
    if not tunables <= cell.config.keys() or illegal(rung, problem, cell.config, REFERENCE):
        return None
    prediction = predict(rung, problem, cell.config)
    found: dict[str, float | None] = {
        SHARED: _predicted_shared(problem, cell.config, prediction),
        L2: _predicted_l2(cell, problem),
        DRAM: prediction.terms["dram"] / 1e3 * H200.dram_bytes_per_s,
    }
    predicted = set(found)
    profile = lookup.profile(cell.rung)
    if profile is not None and _same_tiles(profile, cell):
        counted = to_problem(profile.problem)
        for level, parts in moved(profile).items():
            if level == SHARED or rung.mechanism.staged:
                found[level] = parts.at(counted, problem)
                predicted.discard(level)
    alone = lookup.counted_alone(cell.rung, cell.problem, cell.config)
    dram = alone.total(*HBM_BYTES) if alone is not None else None
    if dram is not None:
        found[DRAM] = dram
        predicted.discard(DRAM)
    unknown = {level for level, value in found.items() if value is None}
    return MeasuredTraffic(**found, predicted=tuple(sorted(predicted - unknown)))


def _same_tiles(profile: Profile, cell: LadderCell) -> bool:
    """Whether a launch was profiled that moves what this one moves: the same tiles, elements of the same size."""

    def kind(config: Config, problem: Problem) -> tuple[object, ...]:
        sizes = problem.a.dtype.bits, problem.d.dtype.bits, problem.a.major, problem.b.major
        return *sizes, *((name, config.get(name)) for name in TILE)

    return kind(profile.config, to_problem(profile.problem)) == kind(cell.config, to_problem(cell.problem))


def _predicted_l2(cell: LadderCell, problem: Problem) -> float:
    """Each CTA's operands once, and D."""
    bm, bn = cell.config["BM"], cell.config["BN"]
    density = 0.5 if problem.a.sparse else 1.0
    whole = ceil_div(problem.m, bm) * bm * ceil_div(problem.n, bn) * bn * problem.k * 2
    operands = whole / tile_intensity(bm, bn, problem.a.dtype.bytes, a_density=density)
    return operands + problem.m * problem.n * problem.d.dtype.bytes


def _predicted_shared(problem: Problem, config: Config, prediction: Prediction) -> float | None:
    """The predicted wavefronts of all SMs; None of a rung whose cost model has no such term."""
    if "shared" not in prediction.terms:
        return None
    ctas = blocks(problem, config)
    busiest = ceil_div(ctas, H200.multiprocessors)  # the prediction is of the SM with the most CTAs
    clocks = prediction.terms["shared"] / 1e3 * H200.clock_hz
    return clocks * H200.shared_bytes_per_clock_per_sm * ctas / busiest
