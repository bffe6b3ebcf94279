"""Special registers as one value for each lane, made when a kernel first names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from warptile.emulator.lanes import WARP, Array

if TYPE_CHECKING:
    from warptile.emulator.machine import LaunchGeometry


class SpecialRegisters:
    """The special registers of a wave that do not change while it runs.

    Args:
        geometry: of the launch.
        multiprocessors: of the GPU, over which CTAs are spread in turn.
        constants: registers of 32 bits that hold one value in all lanes of all waves, besides those of ``geometry``.
    """

    def __init__(self, geometry: LaunchGeometry, multiprocessors: int, constants: Mapping[str, int]) -> None:
        self._geometry = geometry
        self._multiprocessors = multiprocessors
        self._constants = {**_of_launch(geometry, multiprocessors), **constants}
        self._first_cta = 0
        self._made: dict[str, Array] = {}

    def start_wave(self, first_cta: int) -> None:
        """Other CTAs are on the machine; arrays stay the same."""
        self._first_cta = first_cta
        for name, array in self._made.items():
            if name in _OF_CTAS:
                array[:] = self._of_ctas(name)

    def get(self, name: str) -> Array | None:
        """The values of a register; None if there is none of that name."""
        found = self._made.get(name)
        if found is None:
            found = self._make(name)
            if found is not None:
                self._made[name] = found
        return found

    def _make(self, name: str) -> Array | None:
        lanes = self._geometry.lanes
        if name in self._constants:
            return np.full(lanes, self._constants[name], dtype=np.uint32)
        if name in _OF_LANES:
            return _OF_LANES[name](self._geometry, np.arange(lanes)).astype(np.uint32)
        if name in _OF_CTAS:
            return self._of_ctas(name)
        if name in _WIDE:
            return np.full(lanes, _WIDE[name], dtype=np.uint64)
        if name == "is_explicit_cluster":
            return np.full(lanes, self._geometry.cluster_ctas > 1)
        return None

    def _of_ctas(self, name: str) -> Array:
        ctas = self._first_cta + np.arange(self._geometry.ctas)
        values: Array = _OF_CTAS[name](self._geometry, ctas, self._multiprocessors).astype(np.uint32)
        return np.repeat(values, self._geometry.lanes_per_cta)


def _of_launch(geometry: LaunchGeometry, multiprocessors: int) -> dict[str, int]:
    bx, by, bz = geometry.block
    gx, gy, gz = geometry.grid
    cx, cy, cz = geometry.cluster
    return {
        "ntid.x": bx, "ntid.y": by, "ntid.z": bz, "nctaid.x": gx, "nctaid.y": gy, "nctaid.z": gz,
        "tid.w": 0, "ntid.w": 1, "ctaid.w": 0, "nctaid.w": 1, "nsmid": multiprocessors,
        "nwarpid": -(-geometry.threads // WARP), "clusterid.w": 0,
        "nclusterid.x": gx // cx, "nclusterid.y": gy // cy, "nclusterid.z": gz // cz, "nclusterid.w": 1,
        "cluster_nctaid.x": cx, "cluster_nctaid.y": cy, "cluster_nctaid.z": cz, "cluster_nctaid.w": 1,
        "cluster_ctaid.w": 0, "cluster_nctarank": geometry.cluster_ctas,
        **{f"pm{i}": 0 for i in range(8)}, **{f"envreg{i}": 0 for i in range(32)},
    }  # fmt: skip


_WIDE = {"gridid": 1, "current_graph_exec": 0, **{f"pm{i}_64": 0 for i in range(8)}}
"""Registers of 64 bits. Performance monitors do not count; the launch is of no graph that runs on the device."""


def _thread(geometry: LaunchGeometry, lanes: Array) -> Array:
    return lanes % geometry.lanes_per_cta


def _rank(geometry: LaunchGeometry, lanes: Array) -> Array:
    return lanes // geometry.lanes_per_cta % geometry.cluster_ctas


def _bit(lanes: Array) -> Array:
    return np.uint64(1) << (lanes % WARP).astype(np.uint64)


_OF_LANES: dict[str, Callable[[LaunchGeometry, Array], Array]] = {
    "tid.x": lambda g, lanes: _thread(g, lanes) % g.block[0],
    "tid.y": lambda g, lanes: _thread(g, lanes) // g.block[0] % g.block[1],
    "tid.z": lambda g, lanes: _thread(g, lanes) // (g.block[0] * g.block[1]),
    "laneid": lambda g, lanes: lanes % WARP,
    "warpid": lambda g, lanes: _thread(g, lanes) // WARP,
    "cluster_ctarank": _rank,
    "cluster_ctaid.x": lambda g, lanes: _rank(g, lanes) % g.cluster[0],
    "cluster_ctaid.y": lambda g, lanes: _rank(g, lanes) // g.cluster[0] % g.cluster[1],
    "cluster_ctaid.z": lambda g, lanes: _rank(g, lanes) // (g.cluster[0] * g.cluster[1]),
    "lanemask_eq": lambda g, lanes: _bit(lanes),
    "lanemask_lt": lambda g, lanes: _bit(lanes) - np.uint64(1),
    "lanemask_le": lambda g, lanes: 2 * _bit(lanes) - np.uint64(1),
    "lanemask_gt": lambda g, lanes: ~(2 * _bit(lanes) - np.uint64(1)),
    "lanemask_ge": lambda g, lanes: ~(_bit(lanes) - np.uint64(1)),
}
"""Registers of 32 bits that depend on a lane's place in the wave."""

_OF_CTAS: dict[str, Callable[[LaunchGeometry, Array, int], Array]] = {
    "ctaid.x": lambda g, ctas, sms: g.cta_indices(ctas)[0],
    "ctaid.y": lambda g, ctas, sms: g.cta_indices(ctas)[1],
    "ctaid.z": lambda g, ctas, sms: g.cta_indices(ctas)[2],
    "clusterid.x": lambda g, ctas, sms: g.cluster_indices(ctas)[0],
    "clusterid.y": lambda g, ctas, sms: g.cluster_indices(ctas)[1],
    "clusterid.z": lambda g, ctas, sms: g.cluster_indices(ctas)[2],
    "smid": lambda g, ctas, sms: ctas % sms,
}
"""Registers of 32 bits that depend on the number of the CTA in the grid."""
