"""Where the FLOP per byte of T0, "Tensor cores I: the WMMA GEMM", come from: 4, 128 and 224, beside 33 and 87.

The text computes each from a formula and from figures of a T4 that it takes from others. Here the formulas are
evaluated, and beside each are the readings that give another number: the same kernel has other intensities at other
memory levels, and the same GPU has other ridge points with other peaks.
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.roofline.intensity import tile_intensity
from warptile.roofline.published_gpus import DRAM, GPUS, JIA_T4, Publication

T0 = Publication(
    'Vizuara Kernel Engineering, "Tensor cores I: the WMMA GEMM"',
    "https://kernelengineering.vizuara.ai/a/tc-kernel-1-wmma-intro.html",
)
ARMBRUSTER = Publication(
    "A. Armbruster, How To Write A Fast Matrix Multiplication From Scratch With Tensor Cores",
    "https://alexarmbr.github.io/2024/08/10/How-To-Write-A-Fast-Matrix-Multiplication-From-Scratch-With-Tensor-Cores.html",
)

SOURCES = {"T0": T0, "Armbruster": ARMBRUSTER, "Jia et al.": JIA_T4}

MMA = 16
"""M, N and K of the wmma instruction that `wmma-naive` uses, elements."""

HALF_BYTES = 2

FRAGMENT_LOADS = 8
"""Load instructions of a warp for the fragments of A and B: four each, of 32 bits a lane."""

LOAD_ROWS = 8
"""Rows of a fragment that one of these loads touches: 16 bytes of each, in another sector and another line."""

SECTOR_BYTES, LINE_BYTES = 32, 128
"""What L2 hands over at least, and what L1 looks up at a time."""

T4_HGEMM = 49_439e9
"""FLOP/s of cuBLAS's HGEMM on a T4: Armbruster, as T0's 49,000 rounds it."""

T4_FFMA = 7_455e9
"""FLOP/s of FP32 multiply-adds on a T4: Armbruster."""

T4_DRAM = 220e9
"""Bytes per second that a T4 was measured to read: Jia et al., Table 3.1, as Armbruster uses it."""

L2_HITS = 0.5
"""Share of bytes that come from L2, as Armbruster assumes."""


GUIDES = {4: "wmma-naive", 128: "tile of 256 x 256", 224: "T4, as measured"}
"""Figures that pictures show."""


@dataclass(frozen=True)
class Reading:
    """One way to compute a figure of the text.

    Attributes:
        figure: FLOP per byte in the text.
        meaning: what is divided by what.
        formula: the same with the numbers.
        value: FLOP per byte that come out.
        source: where the numbers are from.
    """

    figure: float
    meaning: str
    formula: str
    value: float
    source: str

    @property
    def agrees(self) -> bool:
        """Whether this reading gives the text's figure, which has no decimals: the text cuts them."""
        return int(self.value) == self.figure


def readings() -> tuple[Reading, ...]:
    """Every reading, by figure."""
    return (*_naive(), *_tile(), *_ridge(), *_other_ridges())


def guides() -> tuple[tuple[str, float], ...]:
    """The figures of the title as lines of a picture: their names, and FLOP per byte as they come out."""
    values = {each.figure: each.value for each in readings() if each.agrees}
    return tuple((f"{figure}: {name}", values[figure]) for figure, name in GUIDES.items())


def _naive() -> tuple[Reading, ...]:
    """Of `wmma-naive`, for each MMA of a warp."""
    flops = 2 * MMA**3
    asked = 2 * MMA * MMA * HALF_BYTES
    sectors = FRAGMENT_LOADS * LOAD_ROWS * SECTOR_BYTES
    lines = FRAGMENT_LOADS * LOAD_ROWS * LINE_BYTES
    counted = "counted on an H200 and by the emulator"
    return (
        Reading(
            4, "sectors that the fragment loads move, to L1",
            f"{flops} / ({FRAGMENT_LOADS} loads x {LOAD_ROWS} sectors x {SECTOR_BYTES} B = {sectors} B)",
            flops / sectors, counted,
        ),
        Reading(
            4, "bytes that a warp asks for", f"{flops} / (2 x {MMA} x {MMA} x {HALF_BYTES} B = {asked} B)",
            flops / asked, "T0's formula; T0 prints 2048 B for this product",
        ),
        Reading(
            4, "L1's data path, one line of it for each row of a load",
            f"{flops} / ({FRAGMENT_LOADS} loads x {LOAD_ROWS} lines x {LINE_BYTES} B = {lines} B)",
            flops / lines, f"{counted}; the roof that limits the rung",
        ),
        Reading(
            4, "L2, if L1 serves what a CTA's four warps read twice",
            "tile of 32 x 32: 2 x 32 x 32 / ((32 + 32) x 2 B)", tile_intensity(32, 32, HALF_BYTES), "the rung's tile",
        ),
    )  # fmt: skip


def _tile() -> tuple[Reading, ...]:
    """Of tiles whose operands have two bytes."""
    texts = {256: "T0's formula and tile"}
    found = []
    for bm, bn in ((256, 256), (128, 256), (128, 128)):
        found.append(
            Reading(
                128, f"L2 to shared memory, a CTA tile of {bm} x {bn}", f"{bm} x {bn} / ({bm} + {bn})",
                tile_intensity(bm, bn, HALF_BYTES), texts.get(bm, "T0's formula"),
            )
        )  # fmt: skip
    return tuple(found)


def _ridge() -> tuple[Reading, ...]:
    """Of GPUs: a peak over a bandwidth."""
    t4, h100 = GPUS["T4"], GPUS["H100"]
    shown = "T4, cuBLAS's measured speed over measured DRAM bandwidth"
    found = [
        Reading(224, shown, "49,439 / 220", T4_HGEMM / T4_DRAM, "Armbruster; Jia et al."),
        Reading(224, "the same, as T0 rounds it", "49,000 / 220", 49_000e9 / T4_DRAM, "T0's formula"),
    ]
    for gpu, what in ((t4, "T4, published peak over published DRAM bandwidth"), (h100, "H100, the same")):
        peak, ridge = gpu.peaks["float16"].value, gpu.ridge("float16", DRAM)
        assert ridge is not None
        formula = f"{peak / 1e9:,.0f} / {gpu.dram.value / 1e9:,.0f}"
        found.append(Reading(224, what, formula, ridge, "NVIDIA's data sheets"))
    return tuple(found)


def _other_ridges() -> tuple[Reading, ...]:
    """Two more ridge points that the text names beside the three."""
    t4 = GPUS["T4"]
    assert t4.l2 is not None
    peak, l2 = t4.peaks["float16"].value, t4.l2.value
    mixed = (1 - L2_HITS) * T4_DRAM + L2_HITS * l2
    return (
        Reading(33, "T4, measured FP32 speed of CUDA cores over measured DRAM bandwidth", "7,455 / 220",
                T4_FFMA / T4_DRAM, "Armbruster; Jia et al."),
        Reading(87, "T4, published peak over bandwidth where half of the bytes come from L2",
                f"{peak / 1e9:,.0f} / ({1 - L2_HITS} x 220 + {L2_HITS} x {l2 / 1e9:,.0f})", peak / mixed,
                "Armbruster; Jia et al."),
    )  # fmt: skip
