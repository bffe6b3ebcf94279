"""How the CTAs of a launch are arranged: in clusters, and in waves that run together."""

from __future__ import annotations

import math

from warptile.arch import MAX_BLOCK, MAX_GRID, MAX_THREADS, Arch
from warptile.device import usual
from warptile.emulator.lanes import WARP
from warptile.emulator.machine import LaunchGeometry
from warptile.errors import UnsupportedError
from warptile.launch.spec import Dim3, LaunchSpec
from warptile.ptx.instruction import PtxModule

LANES_PER_WAVE = 1 << 17
"""CTAs are run together up to about so many lanes; a larger grid takes several waves, in CTA order."""

SHARED_BYTES_PER_WAVE = 1 << 25
"""And up to about so much dynamic shared memory: what all SMs of a large GPU hold at once."""

MAX_CLUSTER_CTAS = 16
"""CTAs of the largest cluster; above 8 the kernel has to allow it on the GPU, which the launch does."""


def launch_geometry(module: PtxModule, spec: LaunchSpec, capability: int) -> LaunchGeometry:
    """Where the threads of a launch are.

    Raises:
        UnsupportedError: no GPU of this compute capability (times ten) takes such a launch.
    """
    return _geometry(spec, _cluster(module, spec, capability))


def _cluster(module: PtxModule, spec: LaunchSpec, capability: int) -> Dim3:
    """The CTAs of a cluster: what the launch says, or else the kernel's own `__cluster_dims__`."""
    entry = module.functions.get(spec.entry)
    given = (*entry.directives.get("reqnctapercluster", ()), 1, 1, 1)[:3] if entry is not None else (1, 1, 1)
    built = (given[0], given[1], given[2])
    cluster = built if spec.cluster == (1, 1, 1) else spec.cluster
    if built not in ((1, 1, 1), cluster):
        raise UnsupportedError(f"cluster: got {spec.cluster}; the kernel is compiled for clusters of {built}")
    if cluster == (1, 1, 1):
        return cluster
    if capability < 90:
        raise UnsupportedError(f"cluster: got {cluster}; clusters begin with sm_90, this is sm_{capability}")
    ctas = cluster[0] * cluster[1] * cluster[2]
    if min(cluster) < 1 or ctas > MAX_CLUSTER_CTAS:
        raise UnsupportedError(f"cluster: got {cluster}, {ctas} CTAs; a cluster has 1 to {MAX_CLUSTER_CTAS}")
    if any(extent % size for extent, size in zip(spec.grid, cluster, strict=True)):
        raise UnsupportedError(f"cluster: got {cluster} with grid {spec.grid}: the grid is not a multiple of it")
    return cluster


def _geometry(spec: LaunchSpec, cluster: Dim3) -> LaunchGeometry:
    threads = spec.block[0] * spec.block[1] * spec.block[2]
    for what, extents in (("grid", spec.grid), ("block", spec.block)):
        if min(extents) < 1:
            raise UnsupportedError(f"{what}: got {extents}; every extent is at least 1")
    if threads > MAX_THREADS:
        raise UnsupportedError(f"block: got {spec.block}: {threads} threads; a CTA has at most {MAX_THREADS} threads")
    for what, extents, most in (("grid", spec.grid, MAX_GRID), ("block", spec.block, MAX_BLOCK)):
        for axis, extent, largest in zip("xyz", extents, most, strict=True):
            if extent > largest:
                raise UnsupportedError(
                    f"{what}: got {extents}; a {what} has at most {largest} along {axis}, such as "
                    f"{what}={tuple(map(min, extents, most))}"
                )
    total = spec.grid[0] * spec.grid[1] * spec.grid[2]
    together = max(1, min(total, LANES_PER_WAVE // (-(-threads // 32) * 32)))
    if spec.dynamic_shared_bytes:
        together = max(1, min(together, SHARED_BYTES_PER_WAVE // spec.dynamic_shared_bytes))
    if spec.co_resident or spec.cooperative:
        together = total
    ctas = cluster[0] * cluster[1] * cluster[2]
    return LaunchGeometry(spec.grid, spec.block, max(1, together // ctas) * ctas, cluster)


def check_residency(spec: LaunchSpec, generation: Arch, shared_bytes: int) -> None:
    """Refuse a cooperative launch of which some CTAs would not be resident, as the driver does.

    Registers are not counted: how many a thread has is known to ptxas alone.
    """
    warps = -(-math.prod(spec.block) // WARP)
    on_each = min(generation.max_blocks_per_sm, generation.max_warps_per_sm // warps)
    on_each = min(on_each, generation.shared_bytes_per_sm // max(shared_bytes, 1))
    device, ctas = usual(generation.name), math.prod(spec.grid)
    if ctas > on_each * device.multiprocessors:
        raise UnsupportedError(
            f"cooperative: a launch of {ctas} CTAs; all of them must be resident at once, and "
            f"{device.name} holds {on_each} on each of its {device.multiprocessors} SMs; take a grid of at most "
            f"{on_each * device.multiprocessors}"
        )
