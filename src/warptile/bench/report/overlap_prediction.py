"""What overlapping a transfer with a GEMM can give, by arithmetic: bytes over the link's rate, FLOP over the GEMM's.

The GEMM's rate is that of a record of one GPU, the links' are published; what was measured on several is a table of its
own (`tensor_parallel_tables`).
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.bench.feature_suites.tensor_parallel import LAYERS
from warptile.bench.report.ladder_cells import SHOWN_SIZE, shown_cell
from warptile.bench.report.markdown import TableRow, markdown, number
from warptile.bench.report.record_lookup import NO_RECORD, RecordLookup
from warptile.roofline.published_gpus import H200_SHEET, Publication, Quantity

DGX_SHEET = Publication("NVIDIA DGX H200", "data sheet, 2024")
NVLINK = Quantity(450e9, H200_SHEET, "Technical Specifications, Interconnect; half of 900 GB/s in both directions")
NETWORK = Quantity(50e9, DGX_SHEET, "Networking: 400 Gb/s for each of eight GPUs")
"""Bytes per second into one GPU: from others of its host, and from another host."""

HOST_GPUS = 8
RANKS = (2, 4, 8, 16)
"""The last: two hosts."""

ELEMENT_BYTES = 2
"""bf16."""


@dataclass(frozen=True)
class Overlap:
    """A GEMM of one rank and the transfer beside it, in microseconds.

    Attributes:
        ranks: of the group.
        gemm_us: this rank's part of the layer.
        transfer_us: what this rank receives, or sends.
    """

    ranks: int
    gemm_us: float
    transfer_us: float

    @property
    def one_after_the_other(self) -> float:
        """Time over that of the GEMM alone."""
        return 1 + self.transfer_us / self.gemm_us

    @property
    def overlapped(self) -> float:
        """The same: tiles of the last shard to arrive (or of the first to leave) are multiplied while nothing moves."""
        return max(1.0, (self.transfer_us + self.gemm_us / self.ranks) / self.gemm_us)


def predicted(layer: tuple[int, int, int], ranks: int, tflops: float, *, scatters: bool) -> Overlap:
    """The arithmetic of a layer.

    Args:
        layer: M, N and K of all ranks together.
        ranks: GPUs, of one host up to `HOST_GPUS`.
        tflops: rate of a GEMM.
        scatters: partials of D are scattered after it, instead of parts of A being gathered before it.

    Between two hosts every GPU moves one part over the network and the others over NVLink, both at once.
    """
    m, n, k = layer
    whole = ELEMENT_BYTES * m * (n if scatters else k)
    transfer_s = whole * (ranks - 1) / ranks / NVLINK.value
    if ranks > HOST_GPUS:
        transfer_s = max(transfer_s, whole / ranks / NETWORK.value)
    return Overlap(ranks, 2 * m * n * k / ranks / tflops * 1e-6, transfer_s * 1e6)


HEADER = ("layer (M, N, K)", "GPUs", "GEMM, us", "transfer, us", "one after the other", "overlapped")


def table(lookup: RecordLookup, *, scatters: bool) -> str:
    """Every layer of the suite tp on every number of GPUs: times relative to the GEMM alone."""
    cell = shown_cell(lookup, "wgmma-final")
    if cell is None or cell.tflops is None:
        return NO_RECORD + "\n"
    rows: list[TableRow] = []
    for layer in LAYERS:
        for ranks in RANKS:
            found = predicted(layer, ranks, cell.tflops, scatters=scatters)
            where = f"{ranks} of two hosts" if ranks > HOST_GPUS else str(ranks)
            rows.append((
                ", ".join(map(str, layer)), where, number(found.gemm_us, 0), number(found.transfer_us, 0),
                number(found.one_after_the_other, 2), number(found.overlapped, 2),
            ))  # fmt: skip
    return markdown(HEADER, rows, right=2) + _conditions(cell.tflops) + lookup.origins()


def _conditions(tflops: float) -> str:
    links = "; ".join(
        f"{each.value / 1e9:.0f} GB/s ({each.source.title}, {each.source.place}: {each.where})"
        for each in (NVLINK, NETWORK)
    )
    return (
        f"\nA prediction, not a measurement. bf16; the last two columns are multiples of the GEMM's time. GEMM: "
        f"{tflops:.1f} TFLOP/s, what `wgmma-final` reaches at {SHOWN_SIZE}^3 on one GPU, for parts of every size. "
        f"Links, into each GPU: {links}.\n\n"
    )
