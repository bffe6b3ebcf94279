"""Limits of a GPU that planning depends on: SMs, L2, shared memory, and co-resident clusters.

`warptile.gpu.driver` reads those of a GPU that is present. To plan or emulate without one, take a `KNOWN` model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from warptile.arch import Arch, arch

GPCS = 8
"""GPCs of the largest GPUs with clusters (NVIDIA H100 whitepaper). All CTAs of a cluster run on one GPC."""

MAX_SMS_PER_GPC = 18
"""SMs of a whole GPC on Hopper (NVIDIA H100 whitepaper); they come in pairs, the TPCs."""

PORTABLE_CLUSTER_CTAS = 8
"""CTAs of a cluster that every GPU with clusters takes (CUDA C++ Programming Guide, "Thread Block Clusters")."""

HOPPER = 90
"""Compute capability times ten from which launches may overlap."""

_MIB = 2**20


@dataclass(frozen=True)
class DeviceLimits:
    """One GPU model, or the part of it that a launch may occupy.

    Attributes:
        name: as the driver reports it, such as ``"NVIDIA H200"``.
        arch: architecture to compile for.
        multiprocessors: SMs of the GPU.
        l2_bytes: size of the L2 cache.
        max_ctas: the most CTAs that a launch may have, so that other SMs stay free; None for any number.
        clustered: CTAs that are co-resident, one on an SM, in clusters of 1, 2 and so on, as the driver counts them on
            a GPU that is present. It is empty for a model, whose chips differ.
    """

    name: str
    arch: str
    multiprocessors: int
    l2_bytes: int
    max_ctas: int | None = None
    clustered: tuple[int, ...] = ()

    @property
    def sms(self) -> int:
        """SMs that a launch may occupy."""
        return self.multiprocessors if self.max_ctas is None else min(self.max_ctas, self.multiprocessors)

    @property
    def generation(self) -> Arch:
        """Limits of the compute capability: shared memory, registers, warps."""
        return arch(self.arch)

    @property
    def overlaps_launches(self) -> bool:
        """Whether a launch may start before the one before it has ended (programmatic dependent launch): from Hopper
        on, unless launches leave SMs free, on which two that overlap would run at a time."""
        return self.generation.capability >= HOPPER and self.max_ctas is None

    def co_resident_ctas(self, cluster_ctas: int) -> int:
        """Co-resident CTAs, one on an SM, in clusters of ``cluster_ctas``.

        CTAs that wait for each other must all be resident. A cluster stays within a GPC, and which SMs of a GPC are
        disabled differs from chip to chip. Where the driver has not counted, this is the least over all ways to spread
        the SMs over GPCs.
        """
        if cluster_ctas <= len(self.clustered):
            most = self.clustered[cluster_ctas - 1]
        else:
            most = _least_clustered(self.multiprocessors, cluster_ctas)
        return min(most, self.sms // cluster_ctas * cluster_ctas)

    def occupying(self, max_sms: int | None) -> DeviceLimits:
        """This GPU, of which a launch occupies at most ``max_sms`` SMs; None for all of them."""
        return self if max_sms == self.max_ctas else replace(self, max_ctas=max_sms)


@lru_cache(maxsize=256)
def _least_clustered(sms: int, cluster_ctas: int) -> int:
    """The fewest CTAs in clusters that ``sms`` SMs hold, over all distributions of SM pairs among GPCs."""
    if cluster_ctas <= 2:
        return sms // cluster_ctas * cluster_ctas
    unreachable = sms + 1
    least = [0] + [unreachable] * sms
    for _ in range(GPCS):
        step = list(least)
        for used, ctas in enumerate(least):
            if ctas == unreachable:
                continue
            for in_gpc in range(2, min(MAX_SMS_PER_GPC, sms - used) + 1, 2):
                found = ctas + in_gpc // cluster_ctas * cluster_ctas
                step[used + in_gpc] = min(step[used + in_gpc], found)
        least = step
    return least[sms - sms % 2] if least[sms - sms % 2] != unreachable else 0


KNOWN = {
    device.name: device
    for device in (
        DeviceLimits("NVIDIA H200", "sm_90a", 132, 60 * _MIB),
        DeviceLimits("NVIDIA H100 80GB HBM3", "sm_90a", 132, 50 * _MIB),
        DeviceLimits("NVIDIA H100 NVL", "sm_90a", 132, 50 * _MIB),
        DeviceLimits("NVIDIA H100 PCIe", "sm_90a", 114, 50 * _MIB),
        DeviceLimits("NVIDIA GH200 480GB", "sm_90a", 132, 60 * _MIB),
        DeviceLimits("NVIDIA H20", "sm_90a", 78, 60 * _MIB),
        DeviceLimits("NVIDIA A100-SXM4-80GB", "sm_80", 108, 40 * _MIB),
        DeviceLimits("NVIDIA A30", "sm_80", 56, 24 * _MIB),
        DeviceLimits("NVIDIA A10", "sm_86", 72, 6 * _MIB),
        DeviceLimits("NVIDIA GeForce RTX 3090", "sm_86", 82, 6 * _MIB),
        DeviceLimits("Orin", "sm_87", 16, 4 * _MIB),
        DeviceLimits("NVIDIA L40S", "sm_89", 142, 96 * _MIB),
        DeviceLimits("NVIDIA L4", "sm_89", 58, 48 * _MIB),
        DeviceLimits("NVIDIA GeForce RTX 4090", "sm_89", 128, 72 * _MIB),
        DeviceLimits("Tesla T4", "sm_75", 40, 4 * _MIB),
        DeviceLimits("NVIDIA B200", "sm_100a", 148, 126 * _MIB),
        DeviceLimits("NVIDIA GeForce RTX 5090", "sm_120a", 170, 96 * _MIB),
    )
}
"""GPU models by the name that the driver reports. Sources: NVIDIA's architecture whitepapers and data sheets; the H200
and the H100 SXM as their drivers report them."""

CLUSTERED_ON_AN_H100 = (132, 132, 117, 120, 110, 102, 105, 120)
"""``clustered`` of the H100 that was asked (`docs/lab-notebook/2026-11-27.md`). Chips of a model differ, but hold more
than the least that `DeviceLimits.co_resident_ctas` is sure of."""

REFERENCE = KNOWN["NVIDIA H200"]
"""The GPU that predictions and records are made for."""


def usual(arch_name: str) -> DeviceLimits:
    """The GPU that is planned for where only the architecture is given: the reference, else the first known one of it.

    Raises:
        UnsupportedError: warptile does not know the architecture.
    """
    arch(arch_name)
    if arch_name == REFERENCE.arch:
        return REFERENCE
    found = next((device for device in KNOWN.values() if device.arch == arch_name), None)
    return found or replace(REFERENCE, name=arch_name, arch=arch_name)
