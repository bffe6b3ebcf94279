"""The ladder: every rung by name, in order."""

from __future__ import annotations

from difflib import get_close_matches

from warptile.errors import ArgumentTypeError, UnsupportedError
from warptile.rungs.kernel_spec import Config
from warptile.rungs.mma import MMA_RUNGS
from warptile.rungs.mma_sparse import MMA_SPARSE
from warptile.rungs.mma_specialized import MMA_SPECIALIZED
from warptile.rungs.mma_split_k import MMA_SPLIT_K
from warptile.rungs.mma_tma import MMA_TMA_RUNGS
from warptile.rungs.mma_unaligned import MMA_UNALIGNED
from warptile.rungs.rung import Rung
from warptile.rungs.simt import SIMT_RUNGS
from warptile.rungs.simt_gemv import SIMT_GEMV
from warptile.rungs.simt_split_k import SIMT_SPLIT_K
from warptile.rungs.wgmma.bf16x6 import WGMMA_BF16X6
from warptile.rungs.wgmma.dequantized import WGMMA_DEQUANTIZED
from warptile.rungs.wgmma.final import WGMMA_FINAL
from warptile.rungs.wgmma.float32_split import WGMMA_SPLIT
from warptile.rungs.wgmma.overlap import WGMMA_OVERLAP
from warptile.rungs.wgmma.quantized import WGMMA_QUANTIZED
from warptile.rungs.wgmma.rungs import WGMMA_DEPENDENT_LAUNCH, WGMMA_RUNGS, WGMMA_SPARSE
from warptile.rungs.wgmma.stream_k import WGMMA_STREAM_K
from warptile.rungs.wgmma.two_level import WGMMA_TWO_LEVEL
from warptile.rungs.wmma import WMMA_RUNGS

__all__ = ["BESIDE_THE_LADDER", "RUNGS", "Config", "Rung", "families", "rung"]

_ALL = (
    *SIMT_RUNGS,
    *WMMA_RUNGS,
    *MMA_RUNGS,
    MMA_SPARSE,
    *MMA_TMA_RUNGS,
    *WGMMA_RUNGS,
    WGMMA_OVERLAP,
    WGMMA_STREAM_K,
    WGMMA_TWO_LEVEL,
    WGMMA_SPLIT,
    WGMMA_DEPENDENT_LAUNCH,
    WGMMA_FINAL,
    WGMMA_SPARSE,
)

RUNGS: dict[str, Rung] = {rung.name: rung for rung in _ALL}
"""Every rung by name, in ladder order."""

BESIDE_THE_LADDER: dict[str, Rung] = {
    each.name: each
    for each in (
        SIMT_SPLIT_K,
        SIMT_GEMV,
        MMA_SPLIT_K,
        MMA_SPECIALIZED,
        MMA_UNALIGNED,
        WGMMA_BF16X6,
        WGMMA_QUANTIZED,
        WGMMA_DEQUANTIZED,
    )
}
"""Kernels that plans take and calls may name, and that the ladder does not climb: for products of few rows or few
tiles, for small and unaligned matrices, for large float64 products, and for quantized weights, which no other rung can
be compared on."""


def rung(name: str) -> Rung:
    """The rung called ``name``.

    Raises:
        UnsupportedError: there is none; the message names the nearest.
        ArgumentTypeError: not a name.
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"rung: got {name!r}; it takes a rung's name, such as rung='simt-naive'")
    found = RUNGS.get(name) or BESIDE_THE_LADDER.get(name)
    if found is None:
        nearest = get_close_matches(name, (*RUNGS, *BESIDE_THE_LADDER), n=1)
        hint = f"Did you mean rung={nearest[0]!r}? " if nearest else ""
        raise UnsupportedError(
            f"rung: got {name!r}, and there is no such rung. {hint}"
            f"list(warptile.rungs.RUNGS) gives the names of the ladder, such as rung='simt-naive', and "
            f"list(warptile.rungs.BESIDE_THE_LADDER) the others"
        )
    return found


def families() -> tuple[str, ...]:
    """The families of rungs, in ladder order, such as ``("simt", "wmma", "mma")``."""
    return tuple(dict.fromkeys(rung.family for rung in RUNGS.values()))
