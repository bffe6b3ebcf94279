"""The calibrated constants of expected times: ``data/expected-times-<gpu>.json``.

The file holds the constants of the formulas in this room, the work of each kernel that was measured, which records both
come from, and how far predictions are off. ``python -m warptile.bench.campaign.fit_times`` writes it, never a hand.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec

from warptile.arch import H200
from warptile.decoding import decoded

SCHEMA = "warptile.expected-times/1"
FILE = Path(__file__).resolve().parents[1] / "data" / "expected-times-nvidia-h200.json"


class TimeConstants(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the parts of a launch cost on one GPU model. Clocks are those of an SM.

    Attributes:
        boost_mhz: the SM clock below the power limit: the highest that records sampled.
        power_w: what records sampled at the power limit; idle_w: with nothing to do.
        launch_us: between two launches of a stream.
        early_launch_us: of that, what programmatic dependent launch saves.
        load_clocks: from a global load, or a ``cp.async``, to its data; with the barrier that follows.
        dram_clocks: of a global load whose data L2 does not hold, beyond ``load_clocks``.
        requests_in_flight: global loads of an SM's warps that its L1 keeps at a time; it returns them in order.
        l2_kept: of L2, what holds operands that are read again and again.
        sync_clocks: of a K tile with several stages: the wait for its copies, and the barrier.
        tma_clocks: from the release of a stage to its operands, without their own time.
        overlap: exponent of the norm by which two limits that hide each other come together.
        queueing: of CTAs that share an SM, as `warptile.expected.combined_limits.shared_unit_clocks` takes it.
        wgmma_share: of the issue rate of a loop of ``wgmma`` alone, what a mainloop reaches.
        fma16_per_clock: multiply-adds by HFMA2, of an SM.
        wavefront_clocks: of the L1 data path, for a wavefront of a fragment load.
        line_clocks: the same for a line that a global load or a ``cp.async`` looks up.
        narrow_load_clocks: the same for a global load of less than 32 bits a lane, beyond its line.
        l2_bytes_per_clock: from L2 into one SM.
        tile_clocks: of an epilogue, beside its stores; out_bytes_per_clock: of stores through TMA.
        register_clocks: of storing 128 accumulators from registers.
        stream_factor: of mainloop iterations under stream-K; partial_bytes_per_clock: of exchanging partial
            accumulators.
        mma_pj, wgmma_pj: picojoules of a 16-bit multiply or add, at the boost clock, as are the others.
        bf16_share: of that, with bfloat16, whose significands are shorter.
        instruction_pj: of a warp instruction; wavefront_pj: of 128 bytes of shared memory.
        l2_pj, dram_pj: of a byte.
    """

    boost_mhz: float
    power_w: float
    idle_w: float
    launch_us: float
    early_launch_us: float
    load_clocks: float
    dram_clocks: float
    requests_in_flight: float
    l2_kept: float
    sync_clocks: float
    tma_clocks: float
    overlap: float
    queueing: float
    wgmma_share: float
    fma16_per_clock: float
    wavefront_clocks: float
    line_clocks: float
    narrow_load_clocks: float
    l2_bytes_per_clock: float
    tile_clocks: float
    out_bytes_per_clock: float
    register_clocks: float
    stream_factor: float
    partial_bytes_per_clock: float
    mma_pj: float
    wgmma_pj: float
    bf16_share: float
    instruction_pj: float
    wavefront_pj: float
    l2_pj: float
    dram_pj: float


class KernelWork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measured kernel: what the compiler gave it, and what Nsight Compute counted for one K tile of one CTA.

    Attributes:
        rung: its name.
        tile: the tunables that decide what is counted.
        element_bits: of the operands.
        accumulator: its type.
        registers: of a thread.
        shared_bytes: of a CTA.
        instructions: of all warps.
        read_wavefronts: of fragment loads from shared memory.
        write_wavefronts: of stores to shared memory, and those that ``cp.async`` takes without bank conflicts: it
            waits for lines, not for banks.
        requests: load instructions of global memory, of all warps.
        lines: that global loads and ``cp.async`` look up in L1.
        sectors: of 32 bytes that global loads and TMA request.
    """

    rung: str
    tile: dict[str, int]
    element_bits: int
    accumulator: str
    registers: int
    shared_bytes: int
    instructions: float = 0.0
    read_wavefronts: float = 0.0
    write_wavefronts: float = 0.0
    requests: float = 0.0
    lines: float = 0.0
    sectors: float = 0.0


class Residuals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """|log(measured / predicted)| over some launches: how many, the median, what a tenth exceeds, the largest."""

    launches: int
    median: float
    tenth: float
    worst: float


class TimeModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file.

    Attributes:
        schema: `SCHEMA`.
        gpu: that was measured.
        records: that constants and work come from.
        fitted: residuals of the launches that the constants are fitted to.
        sizes_left_out: the same, each size predicted by constants fitted to the others.
        rungs_left_out: the same, each rung predicted by constants fitted to the others.
        constants: fitted or given.
        sources: of each constant, in words.
        work: of the measured kernels.
    """

    schema: str
    gpu: str
    records: tuple[str, ...]
    fitted: Residuals
    sizes_left_out: Residuals
    rungs_left_out: Residuals
    constants: TimeConstants
    sources: dict[str, str]
    work: tuple[KernelWork, ...]


@lru_cache(maxsize=1)
def shipped() -> TimeModel:
    """The model of the GPU that was measured, `warptile.arch.H200`.

    Raises:
        msgspec.ValidationError: the installation is damaged.
    """
    found = decoded(FILE.read_bytes(), TimeModel)
    assert (found.schema, found.gpu) == (SCHEMA, H200.name), FILE
    return found
