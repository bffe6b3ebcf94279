"""The ladder: every rung by name, in order."""

from __future__ import annotations

from warptile.errors import UnsupportedError
from warptile.rungs.mma import MMA_RUNGS
from warptile.rungs.mma_sparse import MMA_SPARSE
from warptile.rungs.rung import Config, Rung
from warptile.rungs.simt import SIMT_RUNGS
from warptile.rungs.wgmma import WGMMA_RUNGS, WGMMA_SPARSE
from warptile.rungs.wgmma_final import WGMMA_FINAL
from warptile.rungs.wmma import WMMA_RUNGS

__all__ = ["RUNGS", "Config", "Rung", "families", "rung"]

_ALL = (*SIMT_RUNGS, *WMMA_RUNGS, *MMA_RUNGS, MMA_SPARSE, *WGMMA_RUNGS, WGMMA_FINAL, WGMMA_SPARSE)

RUNGS: dict[str, Rung] = {rung.name: rung for rung in _ALL}
"""Every rung by name, in ladder order."""


def rung(name: str) -> Rung:
    """The rung called ``name``.

    Raises:
        UnsupportedError: there is none; the message lists those there are.
    """
    found = RUNGS.get(name)
    if found is None:
        raise UnsupportedError(f"rung: got {name!r}; the ladder has {', '.join(RUNGS)}, such as rung='simt-naive'")
    return found


def families() -> tuple[str, ...]:
    """The families of rungs, in ladder order, such as ``("simt", "wmma", "mma")``."""
    return tuple(dict.fromkeys(rung.family for rung in RUNGS.values()))
