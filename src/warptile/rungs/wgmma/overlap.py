"""wgmma-overlap: finished tiles stay in registers and are stored during the next tile's mainloop."""

from __future__ import annotations

from warptile.device import DeviceLimits
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.wgmma import epilogue
from warptile.rungs.wgmma.rungs import WgmmaRung
from warptile.rungs.wgmma.tiles import accumulator_registers


class WgmmaOverlap(WgmmaRung):
    """The rung with the overlapped epilogue."""

    def held_subtiles(self, seen: Problem, config: Config, device: DeviceLimits) -> tuple[int, int, int]:
        """Subtiles of a warpgroup's part of a tile, how many of them are held, and a thread's registers of each."""
        as_final = {**self._with_cluster(config), "CONSUMERS": self.consumers, "PINGPONG": 0}
        return epilogue.subtiles(seen, as_final, device)

    def _accumulation_reason(self, seen: Problem, config: Config, device: DeviceLimits) -> str | None:
        reason = super()._accumulation_reason(seen, config, device)
        if reason is None and self.held_subtiles(seen, config, device)[1] == 0:
            registers = accumulator_registers(seen, config["BM"] // self.parts, config["BN"])
            reason = (
                f"a thread has {registers} accumulators, and no finished subtile fits beside them: take a smaller tile"
            )
        return reason

    def _registers(self, seen: Problem, config: Config, device: DeviceLimits) -> int:
        _, held, words = self.held_subtiles(seen, config, device)
        return super()._registers(seen, config, device) + held * words

    def _with_cluster(self, config: Config) -> Config:
        return {**super()._with_cluster(config), "OVERLAP": 1}

    def _shared_bytes(self, seen: Problem, config: Config, device: DeviceLimits) -> int:
        return super()._shared_bytes(seen, self._with_cluster(config), device)


WGMMA_OVERLAP = WgmmaOverlap(
    "wgmma-overlap",
    "overlapped epilogue: a finished tile is stored between the next tile's wgmmas",
    "wgmma-store",
    consumers=2,
    parts=2,
    stores=True,
    sizes=((128, 256, 4), (256, 128, 4), (128, 192, 4), (128, 128, 5), (256, 64, 5)),
)
"""The overlapped epilogue."""
