"""Clocks of a K tile where warps load fragments and issue MMAs or multiply-adds themselves: simt, wmma and mma.

Two things limit an SM:

* Throughput: the busiest of its units: warp instructions, four a clock; wavefronts of shared memory and L1, one a
  clock; MMAs; bytes from L2. CTAs on one SM share them.
* The chain of one CTA: a K tile's steps that wait for each other. Each CTA has a chain of its own, and those on an SM
  queue for its busiest unit. Filling the stages and the epilogue belong to the chain of all K tiles.

  - One stage: loads from global memory, as many round trips as the machine code makes; what they bring in; stores to
    shared memory; fragment loads; MMAs. Barriers keep them apart.
  - More stages: fragment loads and MMAs of a K tile beside the copies of a later one, which have as many K tiles' time
    as there are stages in between; and a barrier.
  - Not staged: one load's latency for the K tiles that are unrolled together, and the rest.

Where warps load fragments from global memory, L1 returns loads in the order of their requests, hits behind misses, and
keeps a limited number of them: so it passes at most that number in one load's latency. Rows of tiles drift apart, so
that each reads B anew; what L2 no longer holds of it comes from DRAM, which takes longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.arch import Device
from warptile.expected.combined_limits import largest, overlapped, share_kept, shared_unit_clocks
from warptile.expected.kernel_work import LINE_BYTES, WARP, KTile
from warptile.expected.launch_shape import LaunchShape
from warptile.expected.time_constants import TimeConstants
from warptile.planning.cost_bounds import ISSUE_PER_CLOCK, MULTIPLY_ADD_LANES, tensor_rate
from warptile.rungs.kernel_spec import KernelSpec
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Rung

ELEMENTS_OF_VECTOR = 16
"""Bytes of a vector load."""


@dataclass(frozen=True)
class Mainloop:
    """A K tile of one CTA.

    Attributes:
        chain_clocks: from its first load to its last MMA, one CTA alone.
        busy_clocks: of an SM's units, by name: ``issue``, ``shared``, ``l2``, and ``tensor`` or ``fma``.
    """

    chain_clocks: float
    busy_clocks: dict[str, float]

    def clocks(self, resident: int, queueing: float) -> float:
        """Of an SM for one K tile of one CTA, with so many CTAs on it; ``queueing`` as of `TimeConstants`."""
        return shared_unit_clocks(self.chain_clocks, max(self.busy_clocks.values()), resident, queueing)

    def limit(self, resident: int) -> str:
        """What limits it then: ``latency`` or a unit."""
        return largest({**self.busy_clocks, "latency": self.chain_clocks / resident})


def warp_mainloop(
    rung: Rung, kernel: KernelSpec, work: KTile, shape: LaunchShape, constants: TimeConstants, rates: Device
) -> Mainloop:
    """The mainloop of a rung whose warps load fragments themselves."""
    bk, k_tiles = shape.bk, shape.k_tiles
    config, mechanism, stages = kernel.config, rung.mechanism, kernel.config.get("STAGES", rung.mechanism.stages)
    issue = work.instructions / ISSUE_PER_CLOCK
    math = _math_clocks(rung, kernel, config["BM"] * config["BN"] * bk, constants, rates)
    by_tma = work.bytes / LINE_BYTES if mechanism.by_tma else 0.0
    reads = work.read_wavefronts * constants.wavefront_clocks
    narrow = _narrow_loads(rung, kernel, bk) * constants.narrow_load_clocks
    shared = reads + narrow + work.write_wavefronts + by_tma + work.lines * constants.line_clocks
    busy = {"issue": issue, "shared": shared, "fma" if rung.family == "simt" else "tensor": math}
    if rung.family == "simt":  # multiply-adds are instructions too, which wait for the slower of the two
        issue, math = max(issue, math), 0.0
    if not mechanism.staged:  # L1 serves most of what is requested
        missed = 1 - share_kept(shape.repeated_bytes, constants.l2_kept * rates.l2_bytes)
        latency = constants.load_clocks + missed * constants.dram_clocks
        in_order = work.requests * latency / constants.requests_in_flight
        busy["shared"] = overlapped(shared, in_order, constants.overlap)
        chain = issue + busy["shared"] + math + latency / mechanism.unrolled_k
        return Mainloop(chain, busy)
    fetched = work.bytes / constants.l2_bytes_per_clock
    busy["l2"] = fetched
    around = constants.tile_clocks / k_tiles
    if stages == 1 and not mechanism.by_tma:
        trips = _round_trips(rung, kernel, bk)
        chain = issue + shared + math + trips * constants.load_clocks + fetched
        return Mainloop(chain + around, busy)
    around += constants.load_clocks / k_tiles + constants.sync_clocks
    fragments = issue + reads
    chain = overlapped(fragments, math, constants.overlap) if mechanism.overlaps_stages else fragments + math
    copied = (constants.load_clocks + fetched + work.write_wavefronts) / max(stages - 1, 1)
    return Mainloop(overlapped(chain, copied, constants.overlap) + around, busy)


def _math_clocks(
    rung: Rung, kernel: KernelSpec, multiply_adds: float, constants: TimeConstants, rates: Device
) -> float:
    """Of the multiply-add units of an SM. Multiply-adds of CUDA cores are instructions, which ``issue`` counts; HFMA2
    takes more than a clock to issue."""
    problem = kernel.problem
    if rung.family == "simt":
        packed = rung.mechanism.packed > 1
        return multiply_adds / (constants.fma16_per_clock if packed else MULTIPLY_ADD_LANES[problem.accumulator.name])
    rate = tensor_rate(rung, problem, kernel.config, rates) * 1e12 / 2 / rates.multiprocessors / rates.clock_hz
    return multiply_adds / rate


def _narrow_loads(rung: Rung, kernel: KernelSpec, bk: int) -> float:
    """Warp instructions of a K tile that load an element of less than 32 bits for each lane from global memory."""
    mechanism, config, element = rung.mechanism, kernel.config, kernel.problem.a.dtype
    if not mechanism.staged or mechanism.asynchronous or mechanism.by_tma or element.bits >= 32:
        return 0.0
    transposed = config["BM"] if mechanism.packed > 1 else 0  # simt-half2 copies A element by element
    return (transposed if mechanism.vector else config["BM"] + config["BN"]) * bk / WARP


def _round_trips(rung: Rung, kernel: KernelSpec, bk: int) -> int:
    """How often in a K tile a thread waits for loads from global memory: with ``cp.async`` once; through registers for
    each operand as often as its loads exceed those that are in flight together."""
    mechanism, config, problem = rung.mechanism, kernel.config, kernel.problem
    if mechanism.asynchronous:
        return 1
    in_flight = mechanism.loads_in_flight[problem.accumulator.name == "float16"]
    width = ELEMENTS_OF_VECTOR / problem.a.dtype.bytes if mechanism.vector else 1
    return sum(
        max(1, ceil_div(ceil_div(int(extent * bk / width), kernel.threads), in_flight))
        for extent in (config["BM"], config["BN"])
    )
