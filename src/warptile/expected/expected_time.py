"""Expected time of a rung on the GPU that was measured: what `warptile ladder` and the documents say beside a
measurement.

`warptile.planning.cost_bounds` says how fast a perfect schedule could be, and plans rank configurations by it. This
module says how long a launch takes: it adds what a schedule loses (latencies that too few CTAs hide, instructions that
the compiler adds, epilogues, launches) and the clock that the power limit leaves. No constant is fitted to one rung
alone; rungs differ by their tiles, their `Mechanism`, and the work that was counted in their machine code.

wgmma-final has a cost model of its own, which is fitted to surveys at the power limit; it is taken as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.arch import Device
from warptile.device import REFERENCE, DeviceLimits
from warptile.expected.clock import share_of_boost
from warptile.expected.combined_limits import overlapped
from warptile.expected.kernel_work import KTile, k_tile, measured_kernel
from warptile.expected.launch_shape import LaunchShape, launch_shape
from warptile.expected.time_constants import KernelWork, TimeConstants, shipped
from warptile.expected.warp_mainloop import warp_mainloop
from warptile.expected.wgmma_mainloop import wgmma_timeline
from warptile.planning.cost_bounds import predict
from warptile.planning.rates import rates_of
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, KernelSpec
from warptile.rungs.repack import fused_repacking_ms, repacking_ms
from warptile.rungs.rung import Rung
from warptile.rungs.wgmma.rungs import WgmmaRung


@dataclass(frozen=True)
class ExpectedTime:
    """An expected time.

    Attributes:
        time_ms: of one launch among others, repacking included.
        bound: what limits it most: ``tensor``, ``fma``, ``issue``, ``shared``, ``l2``, ``latency`` or ``dram``.
        tflops: 2 m n k over that time.
        arch: name of the GPU, such as ``"H200"``.
        clock_mhz: of the SMs; None where the model says none (wgmma-final).
        terms: milliseconds: ``sm`` and ``dram`` at the boost clock, ``launch`` and ``repacking``.
    """

    time_ms: float
    bound: str
    tflops: float
    arch: str
    clock_mhz: float | None
    terms: dict[str, float]


@dataclass(frozen=True)
class _Work:
    """Of a launch: clocks of the busiest SM, what limits it, and energy beside that of DRAM, at the boost clock."""

    clocks: float
    limit: str
    energy_pj: float


@dataclass(frozen=True)
class ExpectedLaunch:
    """All that an expected time depends on but the constants.

    Attributes:
        rung: the kernel's; kernel: resolved.
        shape: tiles and bytes.
        k_tile: what a CTA does for a K tile; None of rungs with wgmma, where tile sizes say it.
        rates: of the GPU.
        repacking_ms: before or beside the launch.
    """

    rung: Rung
    kernel: KernelSpec
    shape: LaunchShape
    k_tile: KTile | None
    rates: Device
    repacking_ms: float


def expected_time(
    rung: Rung, problem: Problem, config: Config, limits: DeviceLimits = REFERENCE, *, sustained: bool = True
) -> ExpectedTime:
    """How long a launch takes.

    Args:
        rung: the kernel.
        problem: with elements in D.
        config: its tunables, legal for the problem.
        limits: the GPU. All but the reference have the rates of `warptile.planning.rates`, an assumption.
        sustained: launches follow each other for so long that power limits the clock; else the chip is cool and runs at
            the boost clock.
    """
    if rung.estimates:
        said = predict(rung, problem, config, limits)
        return ExpectedTime(said.time_ms, said.bound, said.tflops, said.arch, None, said.terms)
    model = shipped()
    return time_of(prepared(rung, problem, config, limits, model.work), model.constants, sustained=sustained)


def prepared(
    rung: Rung, problem: Problem, config: Config, limits: DeviceLimits, work: tuple[KernelWork, ...]
) -> ExpectedLaunch:
    """A launch of a rung without a cost model of its own; ``work`` is that of the kernels that were measured."""
    rates = rates_of(limits)
    kernel = rung.resolve(problem, config, limits)
    shape = launch_shape(rung, kernel, measured_kernel(work, rung, problem, config), limits, rates)
    each = None if isinstance(rung, WgmmaRung) else k_tile(work, rung, problem, config)
    repacking = repacking_ms(kernel.copies, rates) + fused_repacking_ms(kernel.view.fused_repacks, rates)
    return ExpectedLaunch(rung, kernel, shape, each, rates, repacking)


def time_of(launch: ExpectedLaunch, constants: TimeConstants, *, sustained: bool = True) -> ExpectedTime:
    """How long a prepared launch takes with these constants."""
    kernel, shape, rates = launch.kernel, launch.shape, launch.rates
    work = _warp_work(launch, constants) if launch.k_tile is not None else _wgmma_work(launch, constants)
    sm_us, dram_us = work.clocks / constants.boost_mhz, shape.dram_bytes / rates.dram_bytes_per_s * 1e6
    boost_us = overlapped(sm_us, dram_us, constants.overlap)
    energy_pj = work.energy_pj + shape.dram_bytes * constants.dram_pj
    share = share_of_boost(energy_pj, boost_us, constants) if sustained else 1.0
    launch_us = constants.launch_us - (constants.early_launch_us if kernel.overlaps_previous else 0.0)
    time_ms = (boost_us / share + launch_us) / 1e3 + launch.repacking_ms
    terms = {"sm": sm_us / 1e3, "dram": dram_us / 1e3, "launch": launch_us / 1e3}
    if launch.repacking_ms:
        terms["repacking"] = launch.repacking_ms
    return ExpectedTime(
        time_ms=time_ms,
        bound="dram" if dram_us > sm_us else work.limit,
        tflops=kernel.problem.flops / time_ms / 1e9,
        arch=rates.name.removeprefix("NVIDIA "),
        clock_mhz=share * constants.boost_mhz,
        terms=terms,
    )


def _flop_pj(kernel: KernelSpec, constants: TimeConstants) -> float:
    """Picojoules of a multiply or add by tensor cores; in proportion to the operands' bits, an assumption that 8-bit
    floats keep."""
    of_16_bits = constants.wgmma_pj if kernel.instance.kernel.startswith("wgmma") else constants.mma_pj
    element = kernel.view.problem.a.dtype
    share = constants.bf16_share if element.name == "bfloat16" else element.bits / 16
    return of_16_bits * share * (0.5 if kernel.problem.a.sparse else 1.0) * (3 if kernel.view.splits else 1)


def _warp_work(launch: ExpectedLaunch, constants: TimeConstants) -> _Work:
    """Tiles of the busiest SM, as many at a time as it holds CTAs."""
    rung, kernel, shape, each = launch.rung, launch.kernel, launch.shape, launch.k_tile
    assert each is not None
    loop = warp_mainloop(rung, kernel, each, shape, constants, launch.rates)
    full, rest = divmod(shape.tiles_of_busiest, shape.resident)
    queueing, k_tiles = constants.queueing, shape.k_tiles
    clocks = full * shape.resident * k_tiles * loop.clocks(shape.resident, queueing)
    if rest:
        clocks += rest * k_tiles * loop.clocks(rest, queueing)
    of_k_tile = each.instructions * constants.instruction_pj + loop.busy_clocks["shared"] * constants.wavefront_pj
    of_k_tile += each.bytes * constants.l2_pj if rung.mechanism.staged else 0.0
    energy = shape.tiles * k_tiles * of_k_tile
    if rung.family != "simt":
        energy += shape.flops * _flop_pj(kernel, constants)
    return _Work(clocks, loop.limit(min(shape.resident, shape.tiles_of_busiest)), energy)


def _wgmma_work(launch: ExpectedLaunch, constants: TimeConstants) -> _Work:
    rung, shape = launch.rung, launch.shape
    assert isinstance(rung, WgmmaRung)
    found = wgmma_timeline(
        launch.kernel, shape, constants, launch.rates, persistent=rung.persistent, stores=rung.stores
    )
    of_k_tile = found.wavefronts * constants.wavefront_pj + found.filled_bytes * constants.l2_pj
    energy = shape.flops * _flop_pj(launch.kernel, constants) + shape.tiles * shape.k_tiles * of_k_tile
    return _Work(found.clocks, found.limit, energy)
