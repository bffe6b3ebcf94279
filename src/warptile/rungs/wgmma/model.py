"""The fitted cost model of wgmma-final for each GPU model: ``data/model-wgmma-final-<gpu>.json``.

A file holds the constants of the formulas (`warptile.rungs.wgmma.cost`), the learned correction
(`warptile.rungs.wgmma.correction`), which records both are fitted to, and how good they are on problems that they were
not fitted to. They are written by ``python -m warptile.bench.campaign.fit_costs``, never by hand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from warptile.device import REFERENCE
from warptile.rungs.wgmma.correction import Correction, Corrector
from warptile.rungs.wgmma.cost import Costs, Launches, Predicted, predict

SCHEMA = "warptile.model/1"
FOLDER = Path(__file__).resolve().parents[2] / "data"


class Quality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How good predictions are, of problems that were left out of the fit (five folds).

    Attributes:
        problems, launches: how many.
        median_error, error_90: of |log(measured / predicted)|: the median, and what a tenth exceeds.
        choice: geometric mean over problems of the fastest measured time over that of the predicted choice.
    """

    problems: int
    launches: int
    median_error: float
    error_90: float
    choice: float


class FittedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file.

    Attributes:
        schema: `SCHEMA`.
        gpu: model that it is fitted to.
        records: that it is fitted to.
        quality: of its predictions.
        costs: constants of the formulas.
        correction: what is learned on top.
    """

    schema: str
    gpu: str
    records: tuple[str, ...]
    quality: Quality
    costs: Costs
    correction: Correction


@dataclass(frozen=True)
class Model:
    """A fitted model ready for use."""

    fitted: FittedModel

    @cached_property
    def _costs(self) -> Any:
        of = msgspec.structs.asdict(self.fitted.costs)
        return SimpleNamespace(
            **{name: np.array(value) if isinstance(value, tuple) else value for name, value in of.items()}
        )

    @cached_property
    def _corrector(self) -> Corrector:
        return Corrector(self.fitted.correction)

    def predict(self, launches: Launches, count: int) -> tuple[NDArray[np.float64], Predicted]:
        """Microseconds of ``count`` launches, corrected, and what the formulas alone say."""
        found = predict(launches, self._costs, np)
        factor = self._corrector.factor(launches, found, count)
        return (found.total_us + np.zeros(count)) * factor, found


def file_of(gpu: str) -> Path:
    """The file of a GPU model."""
    return FOLDER / f"model-wgmma-final-{re.sub(r'[^a-z0-9]+', '-', gpu.lower()).strip('-')}.json"


@lru_cache(maxsize=8)
def model_of(gpu: str) -> Model:
    """The model of a GPU; that of the reference GPU where it has none of its own."""
    path = file_of(gpu)
    raw = (path if path.exists() else file_of(REFERENCE.name)).read_bytes()
    return Model(msgspec.json.decode(raw, type=FittedModel))
