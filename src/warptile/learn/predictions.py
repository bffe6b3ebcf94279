"""What readers predict before they see it: each answer is computed, from instructions, kernels that run, or records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from warptile import measured
from warptile.arch import H200, arch
from warptile.device import REFERENCE
from warptile.emulator import EmulationReport
from warptile.figures.bank_map import SharedTile
from warptile.isa.catalogue import by_name
from warptile.isa.numerics import accumulation
from warptile.isa.operand_drawings import multiplication_layouts
from warptile.isa.swizzle import CHUNK_BYTES
from warptile.ladder import plan_for
from warptile.learn import exercise
from warptile.replay import clock_costs
from warptile.rungs import rung

MMA = "mma.m16n8k16.f32.f16"
SIZE = 4096
HALVES = ("float16", "bfloat16")
ROW_BYTES = 128
COMPUTING = 128
"""Clocks of multiplications for a tile, in the question about stages."""


@dataclass(frozen=True)
class PredictedNumber:
    """What a question's answer is.

    Attributes:
        value: the number.
        unit: of it.
        why: in a sentence or two.
        within: what counts as right: up to this factor above or below. 1 is exact.
    """

    value: float
    unit: str
    why: str
    within: float = 1.0

    @property
    def shown(self) -> str:
        """The number with its unit."""
        figure = f"{self.value:,.0f}" if self.value >= 100 or self.value == int(self.value) else f"{self.value:.2g}"
        unit = self.unit.removesuffix("s") if figure == "1" and self.unit.islower() else self.unit
        return f"{figure} {unit}".rstrip()

    def holds(self, guess: float) -> bool:
        """Whether a guess counts as right."""
        if self.within == 1.0:
            return guess == self.value
        return guess > 0 and 1 / self.within <= guess / self.value <= self.within


@cache
def counted(name: str, size: int = 128) -> EmulationReport:
    """The emulator's report of a rung on a small cube."""
    from warptile.runtime.execute import EmulatorBackend, compiled_ptx
    from warptile.runtime.host_operands import host_operands

    place = EmulatorBackend()
    plan = plan_for(rung(name), (size, size, size), place, "float16")
    report: EmulationReport = place.emulate(plan, compiled_ptx(plan), host_operands(plan.problem), 1.0, 0.0)
    return report


@cache
def replayed_clocks(name: str) -> float:
    """Clocks of a CTA of a rung, by the clock model."""
    from warptile.bench.profiling.replayed import replayed
    from warptile.runtime.execute import EmulatorBackend

    place = EmulatorBackend()
    return replayed(plan_for(rung(name), (128, 128, 512), place, "float16"), place).timeline.clocks


def _recorded(name: str) -> measured.MeasuredRung:
    """The recorded result of a rung at SIZE^3: of 16-bit operands summed in float32."""
    for each in measured.summary().results:
        of = each.problem
        if each.rung == name and of.m == of.n == of.k == SIZE and of.accumulator == "float32" and of.dtype in HALVES:
            return each
    raise AssertionError(f"no record of {name}")


def _share_of_naive() -> PredictedNumber:
    found = _recorded("wmma-naive")
    share = 100 * found.of_cublas
    return PredictedNumber(
        share, "% of cuBLAS",
        f"{found.tflops:.0f} TFLOP/s at {SIZE}^3 on an H200. The tensor cores wait: each fragment comes from "
        "global memory for a single multiplication. The rest of the course is about that waiting.", 2.0,
    )  # fmt: skip


def _share_of_final() -> PredictedNumber:
    found = _recorded("wgmma-final")
    return PredictedNumber(
        100 * found.of_cublas, "% of cuBLAS",
        f"{found.tflops:.0f} TFLOP/s at {SIZE}^3, beside cuBLASLt's best of 24 algorithms in the same run.",
        1.1,
    )  # fmt: skip


def _multiply_adds() -> PredictedNumber:
    return PredictedNumber(
        16 * 8 * 16, "multiply-adds", "D is 16 x 8, and each element is a sum of 16 products: 16 · 8 · 16."
    )


def _mma_clocks() -> PredictedNumber:
    clocks = 16 * 8 * 16 / clock_costs.fma_clocks("float16", wgmma=False)
    return PredictedNumber(
        clocks, "clocks",
        "Measured on an H200 with operands in registers: 647 TFLOP/s, over 132 SMs of four tensor cores each. "
        "Thirty-two "
        "lanes with a fused multiply-add each would take 64 clocks for the same.", 1.6,
    )  # fmt: skip


def _warp_fragments() -> PredictedNumber:
    return PredictedNumber(
        (64 // 16) * (32 // 16), "fragments", "64 x 32 of D, in fragments of 16 x 16: four down and two across. Eight "
        "warps own 64 fragments, which is all of 128 x 128.",
    )  # fmt: skip


def _by_hand() -> PredictedNumber:
    a, b, c = ((1, 2), (3, 4)), ((5, 6), (7, 8)), ((1, 0), (0, 1))
    value = sum(a[1][k] * b[k][0] for k in range(2)) + c[1][0]
    return PredictedNumber(value, "", "Row 1 of A times column 0 of B, plus C[1][0]: 3 · 5 + 4 · 7 + 0.")


def _asked_bytes() -> PredictedNumber:
    return PredictedNumber(
        2 * 16 * 16 * 2, "bytes", "Two fragments of 16 x 16 elements of two bytes. The multiplication does "
        "2 · 16 · 16 · 16 = 8192 operations with them: 8 FLOP for each byte asked for.",
    )  # fmt: skip


def _naive_intensity() -> PredictedNumber:
    counters = counted("wmma-naive").counters
    moved = 32 * counters["global_load_sectors"]
    value = round(counters["tensor_flops"] / moved, 2)
    return PredictedNumber(
        value, "FLOP/byte",
        f"Counted by the emulator: {counters['tensor_flops']:,.0f} FLOP and {counters['global_load_sectors']:,.0f} "
        f"sectors "
        "of 32 bytes. A lane's 4-byte load of a fragment uses half of each sector that it touches, so twice as many "
        "bytes "
        "move as are asked for.", 1.05,
    )  # fmt: skip


def _tile_intensity() -> PredictedNumber:
    return PredictedNumber(
        2 * 128 * 128 / ((128 + 128) * 2), "FLOP/byte",
        "For each step along K a CTA loads 128 + 128 elements of two bytes and does 128 · 128 multiply-adds: the "
        "tile's "
        "area over its perimeter. K itself cancels.",
    )  # fmt: skip


def _lane_of_element() -> PredictedNumber:
    layout = multiplication_layouts(by_name()[MMA])["c"]
    for lane in range(32):
        for register in layout.distinct:
            for element in range(2):
                try:
                    place = layout.place(lane, register, element)
                except (IndexError, AssertionError):
                    continue
                if place == (5, 3):
                    return PredictedNumber(
                        lane, "", f"Lane 4 · row + column / 2 = 4 · 5 + 1, in its register c{register}: the quad of "
                        "four lanes that shares a row, and in it the pair of columns.",
                    )  # fmt: skip
    raise AssertionError("no lane holds it")


def _unswizzled() -> PredictedNumber:
    tile = SharedTile("", 8, ROW_BYTES, ROW_BYTES)
    return PredictedNumber(
        tile.wavefronts(0, 0), "wavefronts", "Rows of 128 bytes all begin in bank 0, so eight chunks of the same "
        "column lie in the same four banks. They are read one after the other.",
    )  # fmt: skip


def _padded() -> PredictedNumber:
    tile = SharedTile("", 8, ROW_BYTES, ROW_BYTES + CHUNK_BYTES)
    return PredictedNumber(
        tile.wavefronts(0, 0), "wavefronts", "Each row begins four banks further on than the one before: eight rows, "
        "eight different groups of four banks.",
    )  # fmt: skip


def _swizzled_chunk() -> PredictedNumber:
    return PredictedNumber(3 ^ 5, "", "3 is 011 and 5 is 101; where they differ there is a one: 110.")


def _stages_needed() -> PredictedNumber:
    copying, computing = clock_costs.L2_LATENCY, COMPUTING
    return PredictedNumber(
        -(-copying // computing) + 1, "stages",
        f"While one tile is computed on ({computing} clocks), copies of later ones are under way for {copying}: three "
        f"of them have to be "
        "started before the first is needed, and one more stage holds the tile in use.",
    )  # fmt: skip


def _double_buffer_gain() -> PredictedNumber:
    before, after = replayed_clocks("mma-swizzled"), replayed_clocks("mma-double-buffer")
    recorded = _recorded("mma-double-buffer").tflops / _recorded("mma-swizzled").tflops
    return PredictedNumber(
        before / after, "times as fast",
        f"{before:,.0f} clocks of a CTA against {after:,.0f}, for K = 512, replayed by the clock model with one CTA on "
        "the SM and all data in L2. Recorded at 4096^3, with other CTAs to hide the waiting and DRAM behind L2: "
        f"{recorded:.2f} times.", 1.25,
    )  # fmt: skip


def _f16_sum() -> PredictedNumber:
    held = np.float16(0)
    for _ in range(4096):
        held = np.float16(held + np.float16(1))
    return PredictedNumber(
        float(held), "", "f16 has 11 significant bits. Above 2048 its numbers are two apart, and 2049 rounds to even: "
        "back to "
        "2048.",
    )  # fmt: skip


def _kept_bits() -> PredictedNumber:
    return PredictedNumber(
        accumulation("f16", 90).fraction_bits, "bits", "Published, and confirmed bit for bit by captures from an H200. "
        "Ampere keeps 24, Volta "
        "23: the same kernel gives other bits there.",
    )  # fmt: skip


def _accumulator_registers() -> PredictedNumber:
    return PredictedNumber(64 * 64 / 32, "registers", "64 · 64 elements over 32 lanes: half of what a thread may have.")


def _resident_ctas() -> PredictedNumber:
    registers = -(-229 // 8) * 8
    return PredictedNumber(
        arch("sm_90a").registers_per_sm // (256 * registers), "CTA",
        f"{registers} registers for each of 256 threads are {256 * registers:,}: a second CTA does not fit.",
    )  # fmt: skip


def _shared_bytes() -> PredictedNumber:
    instructions = (64 // 16) * (64 // 8)
    return PredictedNumber(
        (64 + 64) * 32 / instructions, "bytes", "128 rows of 32 bytes for 4 · 8 instructions. With 64 x 32 it would be "
        "192: the "
        "same area over perimeter as for a CTA's tile.",
    )  # fmt: skip


def _tma_threads() -> PredictedNumber:
    return PredictedNumber(
        1, "thread", "One thread of the CTA, chosen by whoever writes the kernel; TMA does the rest."
    )


def _wgmma_clocks() -> PredictedNumber:
    clocks = 64 * 256 * 16 / clock_costs.PARTITIONS / clock_costs.fma_clocks("float16", wgmma=True)
    return PredictedNumber(
        clocks, "clocks", "262,144 multiply-adds, by four tensor cores of 512 a clock, would be 128; from the 928 "
        "TFLOP/s "
        "measured in short bursts it is this.", 1.1,
    )  # fmt: skip


WAVE_TILES = (4096 // 128) * (4096 // 256)


def _waves() -> PredictedNumber:
    sms = REFERENCE.multiprocessors
    return PredictedNumber(
        -(-WAVE_TILES // sms), "waves", f"{WAVE_TILES} tiles on {sms} SMs: three full waves and {WAVE_TILES - 3 * sms} "
        f"tiles.",
    )  # fmt: skip


def _wave_efficiency() -> PredictedNumber:
    places = -(-WAVE_TILES // REFERENCE.multiprocessors) * REFERENCE.multiprocessors
    return PredictedNumber(
        100 * WAVE_TILES / places, "%", f"{WAVE_TILES} tiles in {places} places. 2048 x 2048 has 128 tiles, which is "
        f"one wave, "
        "just as full.", 1.01,
    )  # fmt: skip


def _stream_k_gain() -> PredictedNumber:
    sms = REFERENCE.multiprocessors
    return PredictedNumber(
        2 * sms / (sms + 1), "times as fast", "Two waves for 133 tiles, against 133/132 of a wave if all SMs share "
        "evenly. What "
        "the sums of divided tiles cost comes off it.", 1.05,
    )  # fmt: skip


def _sparse_bytes() -> PredictedNumber:
    return PredictedNumber(
        100 * (2 * 2 + 2 * 2 / 8) / (4 * 2), "%", "Of four values of two bytes, two are stored, and two bits for the "
        "position of "
        "each: 4.5 bytes instead of 8.", 1.02,
    )  # fmt: skip


def _sparse_gain() -> PredictedNumber:
    return PredictedNumber(
        H200.sparse_gain, "times as fast", "1646 against 928 TFLOP/s, skipped zeros counted as operations. Shared "
        "memory bounds "
        "the gain: B is read in full.", 1.15,
    )  # fmt: skip


def _schedules() -> PredictedNumber:
    text = exercise.named("two-barriers").text()
    found = sum(exercise.check(text, f"random:{seed}").error.startswith("DataRace") for seed in range(8))
    return PredictedNumber(
        found, "of eight", "In every one. The check follows who synchronized with whom, not who came first.",
    )  # fmt: skip


PREDICTIONS: dict[str, Callable[[], PredictedNumber]] = {
    "share-of-naive": _share_of_naive,
    "share-of-final": _share_of_final,
    "multiply-adds": _multiply_adds,
    "mma-clocks": _mma_clocks,
    "warp-fragments": _warp_fragments,
    "by-hand": _by_hand,
    "asked-bytes": _asked_bytes,
    "naive-intensity": _naive_intensity,
    "tile-intensity": _tile_intensity,
    "lane-of-element": _lane_of_element,
    "unswizzled": _unswizzled,
    "padded": _padded,
    "swizzled-chunk": _swizzled_chunk,
    "stages-needed": _stages_needed,
    "double-buffer-gain": _double_buffer_gain,
    "f16-sum": _f16_sum,
    "kept-bits": _kept_bits,
    "accumulator-registers": _accumulator_registers,
    "resident-ctas": _resident_ctas,
    "shared-bytes": _shared_bytes,
    "tma-threads": _tma_threads,
    "wgmma-clocks": _wgmma_clocks,
    "waves": _waves,
    "wave-efficiency": _wave_efficiency,
    "stream-k-gain": _stream_k_gain,
    "sparse-bytes": _sparse_bytes,
    "sparse-gain": _sparse_gain,
    "schedules": _schedules,
}
"""Answers by name."""
