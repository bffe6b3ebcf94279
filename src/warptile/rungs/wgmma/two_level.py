"""wgmma-two-level: FP8 GEMMs with the accuracy of float32."""

from __future__ import annotations

from warptile.device import REFERENCE, DeviceLimits
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import operand_reason
from warptile.rungs.wgmma.rungs import WgmmaRung
from warptile.rungs.wgmma.tiles import TWO_LEVEL_K


class WgmmaTwoLevel(WgmmaRung):
    """The rung with two-level accumulation. Its operands are 8-bit floats and its accumulators float32."""

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        types = operand_reason(problem, self.dtypes, ("float32",), ("row", "col"))
        return types or super().illegal(problem, config, device)

    def _accumulation_reason(self, seen: Problem, config: Config, device: DeviceLimits) -> str | None:
        if config["BK"] % TWO_LEVEL_K:
            return f"BK is {config['BK']}; a stage is promoted in whole intervals of {TWO_LEVEL_K}"
        return None

    def _registers(self, seen: Problem, config: Config, device: DeviceLimits) -> int:
        return super()._registers(seen, config, device) * (1 + config["BK"] // TWO_LEVEL_K)


WGMMA_TWO_LEVEL = WgmmaTwoLevel(
    "wgmma-two-level",
    "two-level accumulation: FP8 sums are promoted to float32 after every 128 of K",
    "wgmma-store",
    consumers=2,
    parts=2,
    stores=True,
    sizes=((128, 128, 5), (256, 64, 4), (128, 192, 4), (128, 64, 6)),
    dtypes=("float8_e4m3", "float8_e5m2"),
)
"""Two-level accumulation."""
