"""wgmma-stream-k: CTAs share the K tiles of the last output tiles."""

from __future__ import annotations

from dataclasses import replace

from warptile.device import REFERENCE, DeviceLimits
from warptile.launch.params import Field, Pointer, Scalar
from warptile.launch.workspace import Workspace
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, KernelSpec, View
from warptile.rungs.legality import blocks
from warptile.rungs.wgmma import tiles
from warptile.rungs.wgmma.residue_classes import d_is_aligned
from warptile.rungs.wgmma.rungs import LARGE_TILES, WgmmaRung

PARTIAL_ACCUMULATORS, PARTIAL_FLAGS = "partial accumulators", "flags of partial accumulators"
"""Workspaces of kernels in which several CTAs accumulate one tile."""

PACKET_REGISTERS = 4
"""Accumulators that one store to the workspace moves: as in tile/partial_accumulators.cuh."""


class WgmmaStreamK(WgmmaRung):
    """The rung with stream-K."""

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        reason = super().illegal(problem, config, device)
        if reason is not None:
            return reason
        if config["SMS"] > device.co_resident_ctas(1):
            resident = device.co_resident_ctas(1)
            return f"SMS is {config['SMS']}; its CTAs wait for each other and {device.name} runs {resident} at a time"
        return None

    def _accumulation_reason(self, seen: Problem, config: Config, device: DeviceLimits) -> str | None:
        reason = super()._accumulation_reason(seen, config, device)
        if reason is not None:
            return reason
        if seen.accumulator.name == "int32_saturating":
            return (
                "saturating accumulators depend on the order of additions, which stream-K changes: take "
                "accumulate='int32', or rung='wgmma-store'"
            )
        rows = config["BM"] // self.parts
        if rows > tiles.ROWS and not d_is_aligned(seen):
            return (
                f"BM is {config['BM']} and TMA cannot store this D: with more than {tiles.ROWS} rows of it a warpgroup "
                f"runs out of registers: take BM={tiles.ROWS * self.parts}"
            )
        registers = tiles.accumulator_registers(seen, rows, config["BN"])
        if registers % PACKET_REGISTERS:
            each = f"{PACKET_REGISTERS} at a time"
            return f"BN is {config['BN']}; a thread's {registers} accumulators are handed over {each}"
        return None

    def shared_tiles(self, seen: Problem, config: Config) -> int:
        """Output tiles whose K tiles all CTAs share: those of the last wave, where it is not full, and of the wave
        before it."""
        count, ctas = blocks(seen, config), self._ctas(seen, config)
        return 0 if count % ctas == 0 else count - max(count // ctas - 1, 0) * ctas

    def _ctas(self, seen: Problem, config: Config) -> int:
        return config["SMS"]

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        kernel = super().resolve(problem, config, device)
        seen = kernel.view.problem
        if not self.shared_tiles(seen, config):
            return kernel
        slots = kernel.ctas * self.consumers
        rows = config["BM"] // self.parts
        each = tiles.accumulator_registers(seen, rows, config["BN"]) * 4 * tiles.WARPGROUP
        workspaces = (Workspace(PARTIAL_ACCUMULATORS, slots * each), Workspace(PARTIAL_FLAGS, slots * 4, zero=True))
        return replace(kernel, kernel_workspaces=workspaces)

    def _members(self, view: View, config: Config, device: DeviceLimits) -> tuple[tuple[str, Field], ...]:
        shared = self.shared_tiles(view.problem, config)
        return (
            *super()._members(view, config, device),
            ("partial_accumulators", Pointer(PARTIAL_ACCUMULATORS if shared else None)),
            ("flags", Pointer(PARTIAL_FLAGS if shared else None)),
            ("stream_k_tiles", Scalar("s32", shared)),
        )


WGMMA_STREAM_K = WgmmaStreamK(
    "wgmma-stream-k",
    "stream-K: all CTAs share the K tiles of the last output tiles evenly",
    "wgmma-store",
    consumers=2,
    parts=2,
    stores=True,
    sizes=LARGE_TILES,
)
"""Stream-K."""
