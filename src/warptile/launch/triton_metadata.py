"""How Triton launches a kernel that it compiled: the metadata that it keeps beside the kernel's PTX.

Triton's cache has ``NAME.ptx`` and ``NAME.json`` for each kernel, and `CompiledKernel.metadata` holds the same fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warptile.errors import ArgumentError
from warptile.launch.spec import Dim3

WARP_LANES = 32

SCRATCH = ("scratch memory", "profiler's memory")
"""What the parameters are that Triton adds behind a kernel's own. The profiler's is not needed."""

_NEEDED = ("name", "num_warps", "shared")


@dataclass(frozen=True)
class TritonLaunch:
    """What Triton's metadata says of a launch.

    Attributes:
        entry: the kernel.
        threads: of a CTA.
        cluster_ctas: CTAs that run one program of the grid, as a cluster along x.
        shared_bytes: of dynamic shared memory.
        scratch_bytes: of global memory that each CTA needs for itself (``global_scratch_size``); its address is the
            last parameter but one.
        cooperative: all CTAs are resident at the same time.
        overlaps_previous: programmatic dependent launch.
        capability: compute capability that it was compiled for, such as 90; None where the metadata do not say.
    """

    entry: str
    threads: int
    cluster_ctas: int
    shared_bytes: int
    scratch_bytes: int = 0
    cooperative: bool = False
    overlaps_previous: bool = False
    capability: int | None = None

    def grid(self, programs: Dim3) -> Dim3:
        """CTAs of the grid, for a grid of programs as Triton's caller says it."""
        return programs[0] * self.cluster_ctas, programs[1], programs[2]


def triton_launch(metadata: Mapping[str, Any]) -> TritonLaunch:
    """What the fields of `CompiledKernel.metadata` say.

    Raises:
        ArgumentError: a field that every version of Triton writes is missing.
    """
    missing = [name for name in _NEEDED if name not in metadata]
    if missing:
        raise ArgumentError(
            f"Triton's metadata: {', '.join(missing)} missing; it takes the fields of CompiledKernel.metadata, such as "
            f"compiled.metadata._asdict()"
        )
    target = metadata.get("target")
    capability = target.get("arch") if isinstance(target, Mapping) else getattr(target, "arch", None)
    return TritonLaunch(
        entry=str(metadata["name"]),
        threads=int(metadata["num_warps"]) * WARP_LANES,
        cluster_ctas=int(metadata.get("num_ctas") or 1),
        shared_bytes=int(metadata["shared"]),
        scratch_bytes=int(metadata.get("global_scratch_size") or 0),
        cooperative=bool(metadata.get("launch_cooperative_grid")),
        overlaps_previous=bool(metadata.get("launch_pdl")),
        capability=capability if isinstance(capability, int) else None,
    )


def triton_launch_beside(ptx: Path) -> tuple[Path, TritonLaunch] | None:
    """The metadata file beside a PTX file, and what it says; None where there is none of Triton's."""
    path = ptx.with_suffix(".json")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or not all(name in content for name in _NEEDED):
        return None
    return path, triton_launch(content)
