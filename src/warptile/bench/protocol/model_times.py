"""Times of whole models, as data: milliseconds of a step by backends that took turns."""

from __future__ import annotations

import statistics

import msgspec


class BackendTimes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One backend's share of a comparison.

    Attributes:
        name: ``"torch"``, ``"warptile"``, ``"compile"`` (torch.compile) or ``"warptile-compile"`` (both).
        rounds_ms: milliseconds of a step, averaged over each turn.
        losses: of every training step; empty where nothing is trained.
    """

    name: str
    rounds_ms: tuple[float, ...]
    losses: tuple[float, ...] = ()

    @property
    def median_ms(self) -> float:
        """The median of the turns."""
        return statistics.median(self.rounds_ms)


class ModelTimes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step of one model by several backends, in interleaved turns.

    Attributes:
        model: what runs, such as ``"GPT-2 124M, training step"``.
        batch: sequences of a step.
        backends: the participants.
    """

    model: str
    batch: int
    backends: tuple[BackendTimes, ...]

    def backend(self, name: str) -> BackendTimes | None:
        """The times of one backend, None if it did not take part."""
        return next((each for each in self.backends if each.name == name), None)

    def ratio(self, name: str, beside: str) -> float | None:
        """The median over turns of one backend's time over another's; None where one did not take part."""
        mine, other = self.backend(name), self.backend(beside)
        if mine is None or other is None:
            return None
        return statistics.median(a / b for a, b in zip(mine.rounds_ms, other.rounds_ms, strict=True))
