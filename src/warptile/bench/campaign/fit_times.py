"""Calibrate expected times to ladder records: ``python -m warptile.bench.campaign.fit_times``.

The work of each kernel comes from its resources in the newest ladder record and from what Nsight Compute counted at
2048^3. The free constants of `warptile.expected.time_constants.TimeConstants` are then fitted to measured times, and to
the clocks that were sampled at the power limit; the others are given, each with its source.

To say how good predictions are of what was not measured, each size, and each rung, is predicted by constants that are
fitted without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import click
import msgspec
import numpy as np

from warptile.bench.protocol.measurements import LadderCell, Profile
from warptile.bench.protocol.records import LadderRecord
from warptile.bench.protocol.workloads import PROFILE_SIZE, to_problem
from warptile.bench.report.record_lookup import RecordLookup
from warptile.device import REFERENCE
from warptile.expected.expected_time import ExpectedLaunch, prepared, time_of
from warptile.expected.kernel_work import tile_of
from warptile.expected.time_constants import (
    FILE,
    SCHEMA,
    KernelWork,
    Residuals,
    TimeConstants,
    TimeModel,
)
from warptile.native.formulas import FloatArray
from warptile.planning.cost_bounds import fragment_k
from warptile.planning.plan import illegal
from warptile.rungs import RUNGS
from warptile.rungs.legality import blocks, ceil_div

START = TimeConstants(
    boost_mhz=1980.0, power_w=690.0, idle_w=80.0, launch_us=2.65, early_launch_us=0.7, load_clocks=640.0,
    dram_clocks=400.0, requests_in_flight=700.0, l2_kept=0.85, sync_clocks=60.0, tma_clocks=793.0, overlap=2.75,
    queueing=0.8, wgmma_share=0.89, fma16_per_clock=118.0, wavefront_clocks=1.0, line_clocks=1.2,
    narrow_load_clocks=4.0, l2_bytes_per_clock=56.8, tile_clocks=649.0, out_bytes_per_clock=35.2,
    register_clocks=45.0, stream_factor=1.223, partial_bytes_per_clock=30.0, mma_pj=1.6, wgmma_pj=1.7, bf16_share=0.91,
    instruction_pj=830.0, wavefront_pj=35.0, l2_pj=1.77, dram_pj=31.0,
)  # fmt: skip
"""Where the fit begins. What is not `FREE` stays; the first three are taken from the records."""

FREE = (
    "launch_us", "early_launch_us", "load_clocks", "dram_clocks", "requests_in_flight", "sync_clocks", "overlap",
    "queueing", "wgmma_share", "fma16_per_clock", "wavefront_clocks", "line_clocks", "narrow_load_clocks",
    "register_clocks", "partial_bytes_per_clock", "mma_pj", "wgmma_pj", "bf16_share", "instruction_pj",
)  # fmt: skip
"""Constants that are fitted."""

FITTED = "fitted to the ladder records"
SURVEY = "fitted to the surveys of wgmma-final (data/model-wgmma-final-nvidia-h200.json)"
SOURCES = {
    "l2_kept": "DRAM bytes of simt-naive at 4096^3 and 8192^3 that Nsight Compute counted (lab notebook, 2026-11-28)",
    "boost_mhz": "the highest clock sampled in the ladder records",
    "power_w": "median over the cells at the power limit of the power sampled",
    "idle_w": "the lowest power sampled in the ladder records",
    "tma_clocks": SURVEY,
    "l2_bytes_per_clock": SURVEY,
    "tile_clocks": SURVEY,
    "out_bytes_per_clock": SURVEY,
    "stream_factor": SURVEY,
    "wavefront_pj": SURVEY,
    "l2_pj": SURVEY,
    "dram_pj": "3.92 pJ per bit of HBM2: M. O'Connor et al., Fine-Grained DRAM, MICRO 2017",
}
"""Where the others come from."""

CLOSE = 0.1
"""|log| of measured over predicted up to which errors count as squares, beyond it as themselves."""

CLOCK_WEIGHT = 0.5
"""Of a sampled clock, relative to a time: samples cover the turns of the baseline as well."""

LIMITED_MHZ = 1900.0
"""Below this sampled clock, and above `LIMITED_W`, power limits both the rung and the baseline."""
LIMITED_W = 680.0

STEPS, REFIT_STEPS, LONGEST_STEP = 60, 12, 0.3


@dataclass(frozen=True)
class MeasuredLaunch:
    """A cell of the ladder, ready to be predicted.

    Attributes:
        rung: its name.
        size: M = N = K.
        launch: prepared.
        time_us: measured.
        sustained: at the power limit.
        clock_mhz: sampled, where power limits rung and baseline; else None.
    """

    rung: str
    size: int
    launch: ExpectedLaunch
    time_us: float
    sustained: bool
    clock_mhz: float | None


# --- from records -----------------------------------------------------------------------------------------------------


def usable(cell: LadderCell) -> bool:
    """Whether a cell was measured, by a rung whose time is predicted here, in a configuration that it still has."""
    rung, problem = RUNGS[cell.rung], to_problem(cell.problem)
    if cell.time_ms is None or cell.failed or rung.estimates:
        return False
    tunables = rung.default_config(problem, REFERENCE).keys()
    return tunables <= cell.config.keys() and illegal(rung, problem, cell.config, REFERENCE) is None


def work_of(cell: LadderCell, profile: Profile | None) -> KernelWork:
    """The work of a measured kernel; without counts where it was not profiled with its tiles."""
    problem, rung = to_problem(cell.problem), RUNGS[cell.rung]
    assert cell.resources is not None
    made = KernelWork(
        rung=cell.rung, tile=tile_of(cell.config), element_bits=problem.a.dtype.bits,
        accumulator=problem.accumulator.name, registers=cell.resources.registers,
        shared_bytes=cell.resources.shared_bytes,
    )  # fmt: skip
    if profile is None or tile_of(profile.config) != made.tile or rung.family == "wgmma":
        return made
    return counted(made, profile)


def counted(made: KernelWork, profile: Profile) -> KernelWork:
    """The same with what was counted for each K tile of each CTA."""
    problem, rung = to_problem(profile.problem), RUNGS[profile.rung]
    k_tiles = ceil_div(problem.k, profile.config.get("BK", fragment_k(rung, problem)))
    each = blocks(problem, profile.config) * k_tiles

    def of(name: str) -> float:
        return float(f"{profile.counters.get(name, 0.0) / each:.5g}")

    def of_opcode(opcode: str, name: str) -> float:
        return profile.by_opcode.get(opcode, {}).get(name, 0.0) / each

    requests = 0.0 if rung.mechanism.staged else of("global_load_requests")
    lines = of_opcode("LDG", "l1_tag_requests") + of_opcode("LDGSTS", "l1_tag_requests")
    return msgspec.structs.replace(
        made, instructions=of("warp_instructions"), requests=requests, read_wavefronts=of("shared_load_wavefronts"),
        write_wavefronts=of("shared_store_wavefronts") + of_opcode("LDGSTS", "shared_wavefronts_ideal"),
        lines=float(f"{lines:.5g}"), sectors=of("global_load_sectors") + of("tma_load_sectors"),
    )  # fmt: skip


def profiled_alone(profile: Profile, cell: LadderCell) -> KernelWork:
    """A profiled kernel that the ladder did not time: its counts are scaled to other tiles."""
    assert cell.resources is not None
    problem = to_problem(profile.problem)
    made = KernelWork(profile.rung, tile_of(profile.config), problem.a.dtype.bits, problem.accumulator.name,
                      profile.registers, cell.resources.shared_bytes)  # fmt: skip
    return counted(made, profile)


def kernels(cells: Iterable[LadderCell], lookup: RecordLookup) -> tuple[KernelWork, ...]:
    """Every measured kernel once, and those that were profiled with other tiles than any that was timed."""
    found: dict[tuple[object, ...], KernelWork] = {}
    for cell in cells:
        profile = lookup.profile(cell.rung, PROFILE_SIZE)
        works = [work_of(cell, profile)]
        if profile is not None and RUNGS[cell.rung].family != "wgmma" and not works[0].instructions:
            works.append(profiled_alone(profile, cell))
        for work in works:
            found.setdefault((work.rung, *work.tile.items(), work.element_bits, work.accumulator), work)
    return tuple(found.values())


def launches(cells: Iterable[tuple[LadderCell, bool]], work: tuple[KernelWork, ...]) -> list[MeasuredLaunch]:
    """Cells, each with whether it is sustained, prepared."""
    found = []
    for cell, sustained in cells:
        assert cell.time_ms is not None
        samples, clock = cell.samples, None
        if sustained and samples is not None and samples.power_w.median > LIMITED_W:
            clock = samples.sm_clock_mhz.median if samples.sm_clock_mhz.median < LIMITED_MHZ else None
        launch = prepared(RUNGS[cell.rung], to_problem(cell.problem), cell.config, REFERENCE, work)
        found.append(MeasuredLaunch(cell.rung, cell.problem.m, launch, cell.time_ms * 1e3, sustained, clock))
    return found


def sampled(lookup: RecordLookup) -> TimeConstants:
    """`START` with the clock and the powers that were sampled."""
    ladders = [each.environment.samples for each in lookup.records if isinstance(each, LadderRecord)]
    cells = [cell for cell, sustained in lookup.ladder_cells() if sustained]
    powers = [cell.samples.power_w.median for cell in cells if cell.samples is not None]
    return msgspec.structs.replace(
        START,
        boost_mhz=max(each.sm_clock_mhz.high for each in ladders if each is not None),
        power_w=round(float(np.median([each for each in powers if each > LIMITED_W])), 1),
        idle_w=round(min(each.power_w.low for each in ladders if each is not None), 1),
    )


# --- the fit ----------------------------------------------------------------------------------------------------------


def errors(measured: Sequence[MeasuredLaunch], constants: TimeConstants) -> FloatArray:
    """log(measured / predicted) of each launch."""
    return np.array([_error(each, constants)[0] for each in measured])


def _error(each: MeasuredLaunch, constants: TimeConstants) -> list[float]:
    said = time_of(each.launch, constants, sustained=each.sustained)
    found = [math.log(each.time_us / said.time_ms / 1e3)]
    if each.clock_mhz is not None and said.clock_mhz is not None:
        found.append(CLOCK_WEIGHT * math.log(each.clock_mhz / said.clock_mhz))
    return found


def _all_errors(measured: Sequence[MeasuredLaunch], constants: TimeConstants) -> FloatArray:
    return np.array([error for each in measured for error in _error(each, constants)])


def fit(measured: Sequence[MeasuredLaunch], start: TimeConstants, steps: int = STEPS) -> TimeConstants:
    """Constants that descend from ``start``, by damped Gauss-Newton steps on logarithms."""
    constants, damping, delta = start, 1e-2, 1e-3
    off = _all_errors(measured, constants)
    for _ in range(steps):
        slopes = np.stack(
            [(_all_errors(measured, _scaled(constants, {name: delta})) - off) / delta for name in FREE], axis=1
        )
        weights = np.minimum(1, CLOSE / np.maximum(np.abs(off), 1e-9))
        normal, descent = slopes.T @ (slopes * weights[:, None]), -slopes.T @ (weights * off)
        better = None
        while better is None and damping < 1e6:
            matrix = normal + damping * np.diag(np.diag(normal) + 1e-6)
            step = np.clip(np.linalg.solve(matrix, descent), -LONGEST_STEP, LONGEST_STEP)
            tried = _scaled(constants, dict(zip(FREE, step.tolist(), strict=True)))
            found = _all_errors(measured, tried)
            if _loss(found) < _loss(off):
                better, damping = tried, max(damping / 3, 1e-6)
            else:
                damping *= 4
        if better is None:
            break
        gained, constants, off = 1 - _loss(found) / _loss(off), better, found
        if gained < 1e-5:
            break
    return constants


def _scaled(constants: TimeConstants, logs: dict[str, float]) -> TimeConstants:
    changed = {name: getattr(constants, name) * math.exp(log) for name, log in logs.items()}
    return msgspec.structs.replace(constants, **changed)


def _loss(off: FloatArray) -> float:
    size = np.abs(off)
    return float(np.where(size < CLOSE, 0.5 * size**2, CLOSE * (size - 0.5 * CLOSE)).sum())


def residuals(off: FloatArray) -> Residuals:
    """A summary of errors."""
    size = np.abs(off)
    figures = (float(np.median(size)), float(np.quantile(size, 0.9)), float(size.max()))
    return Residuals(len(size), *(float(f"{each:.3g}") for each in figures))


def left_out(
    measured: Sequence[MeasuredLaunch], constants: TimeConstants, part: Callable[[MeasuredLaunch], str | int]
) -> Residuals:
    """Residuals of each part, predicted by constants that are fitted to the other parts."""
    off = np.zeros(len(measured))
    for name in dict.fromkeys(map(part, measured)):
        others = [each for each in measured if part(each) != name]
        refitted = fit(others, constants, REFIT_STEPS)
        here = np.array([part(each) == name for each in measured])
        off[here] = errors([each for each in measured if part(each) == name], refitted)
    return residuals(off)


def calibrate(lookup: RecordLookup, say: Callable[[str], None]) -> TimeModel:
    """The model of all that the records hold."""
    cells = [(cell, sustained) for cell, sustained in lookup.ladder_cells() if usable(cell)]
    work = kernels([cell for cell, _ in cells], lookup)
    measured = launches(cells, work)
    constants = fit(measured, sampled(lookup))
    constants = msgspec.structs.replace(constants, **{name: float(f"{getattr(constants, name):.4g}") for name in FREE})
    fitted = residuals(errors(measured, constants))
    say(f"{fitted.launches} launches: median {fitted.median:.3f}, a tenth above {fitted.tenth:.3f}, {fitted.worst:.3f}")
    sizes = left_out(measured, constants, lambda each: each.size)
    say(f"sizes left out: median {sizes.median:.3f}, a tenth above {sizes.tenth:.3f}, worst {sizes.worst:.3f}")
    rungs = left_out(measured, constants, lambda each: each.rung)
    say(f"rungs left out: median {rungs.median:.3f}, a tenth above {rungs.tenth:.3f}, worst {rungs.worst:.3f}")
    sources = {name: SOURCES.get(name, FITTED) for name in TimeConstants.__struct_fields__}
    return TimeModel(SCHEMA, REFERENCE.name, lookup.sources(), fitted, sizes, rungs, constants, sources, work)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Calibrate expected times to the committed records, and write their file."""
    found = calibrate(RecordLookup(), click.echo)
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    for name in FREE:
        click.echo(f"  {name} {getattr(found.constants, name):g}")


if __name__ == "__main__":
    main()
