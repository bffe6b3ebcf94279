"""Blocks that share the K of a tile of D: their launch, for a batch too. The last one to finish adds up what all have
(kernels/tile/parts_of_k.cuh)."""

from __future__ import annotations

from dataclasses import replace

from warptile.device import DeviceLimits
from warptile.launch.params import Field, Params, Pointer, Scalar
from warptile.launch.workspace import Workspace
from warptile.rungs.batch import batch_members, with_batch
from warptile.rungs.kernel_spec import KernelSpec, gemm_members
from warptile.rungs.launch_overlap import lets_next_start, overlapping, spread

PARTIALS, ARRIVALS = "partial sums", "arrivals"

MOST_PARTS = 65536
"""Of the K of a tile."""


def shared_by_blocks(
    one: KernelSpec, splits: int, tile_bytes: int, device: DeviceLimits, *, spreads: bool = False
) -> KernelSpec:
    """A launch with ``splits`` blocks for each tile, which waits by itself for the launch before it.

    Args:
        one: the launch with one block for each, whose parameters are those of every GEMM.
        splits: parts of K; without workspace where there is one.
        tile_bytes: of a tile's sums.
        device: where it runs.
        spreads: no SM is to have more than its share of CTAs (`launch_overlap.spread`).
    """
    tiles, shared = one.grid[0], splits > 1
    ctas = tiles * splits
    seen = one.view.problem
    members: tuple[tuple[str, Field], ...] = (
        *gemm_members(one.view),
        ("partials", Pointer(PARTIALS if shared else None)),
        ("arrivals", Pointer(ARRIVALS if shared else None)),
        ("splits", Scalar("s32", splits)),
        ("lets_next_start", Scalar("u32", spreads or lets_next_start(ctas, one.threads, device.multiprocessors))),
        *batch_members(seen),
    )
    workspaces = (Workspace(PARTIALS, ctas * tile_bytes), Workspace(ARRIVALS, tiles * 4, zero=True))
    of_parts = replace(
        one,
        instance=with_batch(one.instance, seen),
        grid=(ctas, 1, 1),
        waits=False,  # blocks count arrivals and wait for none
        params=Params(members),
        kernel_workspaces=workspaces if shared else (),
    )
    overlaps = overlapping(of_parts, device)
    return spread(overlaps, device) if spreads else overlaps


def parts_reason(tiles: int, splits: int) -> str | None:
    """Why a grid cannot have a block for each part of each tile, or None: ``begin_of_part`` counts in 32 bits."""
    if splits > MOST_PARTS:
        return f"SPLITS is {splits}; at most {MOST_PARTS} blocks share a tile"
    if tiles * splits >= 2**31:
        return f"it has {tiles} tiles of {splits} blocks; a grid has fewer than 2**31"
    return None
