"""The fitted cost model of wgmma-final for each GPU model: ``data/model-wgmma-final-<gpu>.json``.

A file holds the constants of the formulas (`warptile.rungs.wgmma.cost`), the learned correction
(`warptile.rungs.wgmma.correction`), which records both are fitted to, and how good they are on problems that they were
not fitted to. They are written by ``python -m warptile.bench.campaign.fit_costs``, never by hand. On other GPUs, or for
one that differs from its kind, ``warptile tune --calibrate`` writes a user's own.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from warptile.decoding import converted, decoded
from warptile.device import REFERENCE
from warptile.folders import CHOSEN, user_folder
from warptile.native.formulas import Constants, FloatArray, Formulas
from warptile.rungs.wgmma.correction import Correction, Corrector
from warptile.rungs.wgmma.cost import Costs, Launches, Predicted, predict

SCHEMA = "warptile.model/1"
FOLDER = Path(__file__).resolve().parents[2] / "data"

Places = NDArray[np.int64] | slice
AllIn = Callable[[FloatArray, Places], FloatArray]
"""From microseconds of some launches and their places to microseconds with more in them."""

EVERY = slice(None)
"""Places of all launches."""

NEAREST = 1.5
"""How many times as long as the fastest, by the formulas alone, a launch may take that is the fastest when corrected:
at most 1.39 in 400 random problems."""

FEW = 16
"""Launches that the larger networks look at. These rarely lack the fastest of all: in random problems that costs 0.01 %
in the mean, with few columns 0.04 %, with K of at most 128 0.13 % (5 % at most)."""


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
class Predictions:
    """Predicted times of many launches at once.

    Attributes:
        formulas: microseconds by the formulas alone, and the inputs of the correction.
        corrector: what is learned on top.
    """

    formulas: Formulas
    corrector: Corrector

    def times_us(self, columns: FloatArray, numbers: FloatArray) -> FloatArray:
        """Microseconds of each launch; arguments as of `Formulas`."""
        found = self.formulas(columns, numbers)
        times: FloatArray = found[0] * self.corrector.factor(found[1:], np.arange(found.shape[1]))
        return times

    def nearest(self, columns: FloatArray, numbers: FloatArray, all_in: AllIn) -> tuple[NDArray[np.int64], FloatArray]:
        """Places of the launches that may be the fastest, and their microseconds: of those that the formulas alone have
        within `NEAREST` of the fastest, the `FEW` that are fastest by the rough correction.

        Args:
            columns, numbers: as of `Formulas`.
            all_in: what the model does not know of, added to the times of some places.
        """
        found = self.formulas(columns, numbers)
        by_formula = all_in(found[0], EVERY)
        near = (by_formula <= NEAREST * by_formula.min(initial=np.inf)).nonzero()[0]
        if len(near) > FEW:
            roughly = all_in(found[0, near] * self.corrector.rough_factor(found[1:], near), near)
            near = np.sort(near[np.argpartition(roughly, FEW)[:FEW]])
        return near, all_in(found[0, near] * self.corrector.factor(found[1:], near), near)


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model ready for use."""

    fitted: FittedModel

    @cached_property
    def _costs(self) -> Any:
        of = msgspec.structs.asdict(self.fitted.costs)
        return SimpleNamespace(
            **{name: Constants(np.array(value)) if isinstance(value, tuple) else value for name, value in of.items()}
        )

    @cached_property
    def _corrector(self) -> Corrector:
        return Corrector(self.fitted.correction)

    def with_costs(self, costs: Costs) -> Model:
        """The model with other constants; both share what is learned on top, which takes a while to make ready."""
        changed = Model(msgspec.structs.replace(self.fitted, costs=costs))
        changed.__dict__["_corrector"] = self._corrector
        return changed

    def formulas(
        self, launches: Callable[[Mapping[str, Any]], Launches], columns: Sequence[str], numbers: Sequence[str] = ()
    ) -> Predictions:
        """Predicted times of launches that are made of so named arrays and numbers."""

        def evaluated(of: Mapping[str, Any]) -> list[Any]:
            made = launches(of)
            found = predict(made, self._costs, np)
            return [found.total_us, *self._corrector.inputs(made, found)]

        return Predictions(Formulas(evaluated, columns, numbers), self._corrector)

    def predict(self, launches: Launches) -> tuple[FloatArray, Predicted]:
        """Microseconds of launches, corrected, and all that the formulas alone say of them."""
        found = predict(launches, self._costs, np)
        inputs = np.stack(np.broadcast_arrays(found.total_us, *self._corrector.inputs(launches, found)))
        rows = inputs.reshape(len(inputs), -1)
        return rows[0] * self._corrector.factor(rows[1:], np.arange(rows.shape[1])), found


def file_name(gpu: str) -> str:
    """Name of the file of a GPU model."""
    return f"model-wgmma-final-{re.sub(r'[^a-z0-9]+', '-', gpu.lower()).strip('-')}.json"


def file_of(gpu: str) -> Path:
    """The file of a GPU model that ships."""
    return FOLDER / file_name(gpu)


def user_file(gpu: str) -> Path:
    """The file of this user's own calibration (``warptile tune --calibrate``), which goes before the one that ships."""
    return user_folder("data") / "models" / file_name(gpu)


def model_of(gpu: str) -> Model:
    """The model of a GPU: as this user calibrated it, else as it ships; that of the reference GPU where it has none.
    Files are read once a process."""
    return _model_of(gpu, os.environ.get(CHOSEN))


@lru_cache(maxsize=16)
def _model_of(gpu: str, _chosen: str | None) -> Model:
    own = user_file(gpu)
    try:
        if own.exists():
            return Model(decoded(own.read_bytes(), FittedModel))
    except (OSError, msgspec.MsgspecError) as error:
        warnings.warn(
            f"{own} is not read: {error}. Plans are predicted by the model that ships; calibrate anew with "
            "warptile tune --calibrate, or remove the file",
            stacklevel=2,
        )
    return shipped_model(gpu)


@lru_cache(maxsize=16)
def shipped_model(gpu: str) -> Model:
    """The model of a GPU that ships; that of the reference GPU where it has none of its own. All share the networks of
    the reference GPU, which its file alone has."""
    path, of_reference = file_of(gpu), file_of(REFERENCE.name)
    found = msgspec.json.decode((path if path.exists() else of_reference).read_bytes())
    if "correction" not in found:
        found["correction"] = msgspec.json.decode(of_reference.read_bytes())["correction"]
    return Model(converted(found, FittedModel))


def written(model: FittedModel) -> bytes:
    """The content of a file that ships."""
    found = msgspec.to_builtins(model)
    if model.gpu != REFERENCE.name:
        del found["correction"]
    return msgspec.json.encode(found) + b"\n"
