"""Blocks that share the K of a tile of D: their launch, for a batch too. The last one to finish adds up what all have
(kernels/tile/parts_of_k.cuh)."""

from __future__ import annotations

from dataclasses import replace

from warptile.launch.params import Field, Params, Pointer, Scalar
from warptile.launch.workspace import Workspace
from warptile.rungs.batch import batch_members, with_batch
from warptile.rungs.kernel_spec import KernelSpec, gemm_members

PARTIALS, ARRIVALS = "partial sums", "arrivals"

MOST_PARTS = 65536
"""Of the K of a tile."""


def shared_by_blocks(one: KernelSpec, splits: int, tile_bytes: int) -> KernelSpec:
    """A launch with ``splits`` blocks for each tile.

    Args:
        one: the launch with one block for each, whose parameters are those of every GEMM.
        splits: parts of K; without workspace where there is one.
        tile_bytes: of a tile's sums.
    """
    tiles, shared = one.grid[0], splits > 1
    seen = one.view.problem
    members: tuple[tuple[str, Field], ...] = (
        *gemm_members(one.view),
        ("partials", Pointer(PARTIALS if shared else None)),
        ("arrivals", Pointer(ARRIVALS if shared else None)),
        ("splits", Scalar("s32", splits)),
        *batch_members(seen),
    )
    workspaces = (Workspace(PARTIALS, tiles * splits * tile_bytes), Workspace(ARRIVALS, tiles * 4, zero=True))
    return replace(
        one,
        instance=with_batch(one.instance, seen),
        grid=(tiles * splits, 1, 1),
        waits=False,  # blocks count arrivals and wait for none
        params=Params(members),
        kernel_workspaces=workspaces if shared else (),
    )


def parts_reason(tiles: int, splits: int) -> str | None:
    """Why a grid cannot have a block for each part of each tile, or None: ``begin_of_part`` counts in 32 bits."""
    if splits > MOST_PARTS:
        return f"SPLITS is {splits}; at most {MOST_PARTS} blocks share a tile"
    if tiles * splits >= 2**31:
        return f"it has {tiles} tiles of {splits} blocks; a grid has fewer than 2**31"
    return None
