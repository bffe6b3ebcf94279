"""What a rung of the ladder is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

from warptile.device import REFERENCE, DeviceLimits
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, KernelSpec
from warptile.rungs.mechanism import Mechanism

Extents = tuple[int, int, int, int]
"""M, N, K and the number of matrices of a batch."""


class Rung(ABC):
    """One kernel of the ladder: one file, one idea.

    Whatever depends on a device takes its limits, by default those of the reference GPU.

    Attributes:
        name: such as ``"wmma-padded"``.
        family: ``"simt"``, ``"wmma"``, ``"mma"`` or ``"wgmma"``.
        idea: one line: what this rung adds.
        previous: name of the rung it is compared with, or None.
        min_arch: compute capability times ten that its instructions need, such as 70.
        only_arch: the one architecture that has its instructions, such as ``"sm_90a"``, or None: all from
            ``min_arch`` on.
        dtypes: names of the operand types it takes, the usual one first.
        may_spill: a spill in this rung is part of its lesson, and no build failure.
        sparse: A is a `warptile.SparseMatrix`; its metadata is one more operand, ``"E"``.
        quantized: B is a `warptile.QuantizedWeights`.
        mechanism: how it moves operands.
        estimates: its `estimate_us` is fitted to measurements and ranks its configurations.
        automatic: a plan may take it where no rung is named.
        competes: and does where it is predicted to be faster than the next rung of the ladder that takes the problem.
        batch_invariant: it takes problems that ask for batch invariance. Of these its legal configurations all add in
            one order, which depends on types, N and K; those of rungs for quantized weights in the same one.
        persistent: a launch has no more CTAs than SMs, however many tiles D has.
        batches: one launch takes a batch of matrices.
    """

    name: str
    family: ClassVar[str]
    idea: str
    previous: str | None
    min_arch: int
    only_arch: str | None = None
    dtypes: tuple[str, ...]
    may_spill: bool = False
    sparse: bool = False
    quantized: bool = False
    mechanism: Mechanism = Mechanism()
    estimates: bool = False
    persistent: bool = False
    batches: bool = False
    automatic: bool = True
    competes: bool = False
    batch_invariant: bool = False

    @property
    def template(self) -> str:
        """Name of the kernel template, such as ``"wmma_padded"``."""
        return self.name.replace("-", "_")

    @property
    def file(self) -> str:
        """Path of its source below ``kernels/``, such as ``"wmma/padded.cuh"``."""
        return f"{self.family}/{self.template.removeprefix(self.family + '_')}.cuh"

    @abstractmethod
    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """The configuration used when nothing is tuned; where none is legal, one whose refusal says why."""

    @abstractmethod
    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """Every configuration worth trying, legal ones and others, those first that a plan looks at."""

    def ranks(self, problem: Problem) -> bool:
        """Whether `default_config` is the candidate that this rung predicts to be the fastest."""
        return self.estimates

    def looked_at(self, problem: Problem) -> int:
        """How many of the first `candidates` a plan of a rung without `estimates` looks at, as each of them takes time;
        the others are for tuning."""
        return 24

    @abstractmethod
    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """None when this rung can run ``problem`` in ``config``, else the reason as a sentence that says what was given
        and what would work. The single statement of each constraint on the Python side."""

    def unsuitable(self, problem: Problem, device: DeviceLimits = REFERENCE) -> str | None:
        """Why a plan that names no rung does not take this one, though it can run ``problem``; None where it may."""
        return None

    @abstractmethod
    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """Everything that a launch needs. ``config`` must be legal."""

    def estimate_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """Predicted microseconds of a legal configuration, where ``estimates`` says that there is such a model."""
        raise NotImplementedError(f"{self.name} has no cost model of its own: see warptile.planning.cost_bounds")

    def compared_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float | None:
        """Microseconds that a plan compares with those of kernels that compete, copies of operands included, where
        this rung has no ``estimates`` and its bound (`warptile.planning.cost_bounds`) would be too low for that, or
        where they are known without resolving the kernel; None for the predicted ones."""
        return None

    def changed_since_searches(self, problem: Problem) -> bool:
        """Whether kernels for this problem have become faster, in some configurations more than in others, since the
        searches that the shipped tuned table is from."""
        return False

    def searched_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `estimate_us`, of kernels as those searches had them, without an epilogue."""
        return self.estimate_us(replace(problem, epilogue=None), config, device)

    def alternatives(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """The legal configurations that are predicted to be the fastest after the default one; none where it does not
        predict."""
        return ()

    def kernel_examples(self, like: Problem, device: DeviceLimits = REFERENCE) -> tuple[tuple[Problem, Config], ...]:
        """A problem for each kernel that plans choose from, with ``like``'s types and layouts, and the configuration;
        none where kernels are not a chosen few."""
        return ()

    def model_basis(self, device: DeviceLimits) -> str | None:
        """What its own cost model is fitted to, in words, or None where it has none."""
        return None

    def model_error(self, device: DeviceLimits) -> float | None:
        """The relative error of predicted times that a tenth of launches exceeds, of problems that the model was not
        fitted to; None where it has no model of its own, and on a GPU that this was not fitted to."""
        return None

    def estimate_terms_us(
        self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE
    ) -> tuple[dict[str, float], float]:
        """Predicted microseconds by limiting resource and of the whole GEMM, without repacking, where ``estimates``."""
        raise NotImplementedError(f"{self.name} has no cost model of its own: see warptile.planning.cost_bounds")

    def adapt(
        self,
        problem: Problem,
        config: Config,
        tuned_for: Extents,
        device: DeviceLimits = REFERENCE,
        tuned_on: DeviceLimits = REFERENCE,
    ) -> Config:
        """A configuration that was tuned for the extents ``tuned_for`` on ``tuned_on``, with what follows from extents
        and SMs worked out for ``problem`` on ``device``; it may be illegal there."""
        return config

    def __repr__(self) -> str:
        return f"<rung {self.name}>"
