"""A row of a feature suite: calls of the public API on torch tensors, what they are compared with, and their check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warptile.calls.matmul_plan import MatmulPlan
from warptile.gpu.timing import operand_sets

OURS = "warptile"
"""The first participant of every row."""

BF16_ROUNDING = 2.0**-8
"""Twice the largest relative error of rounding to bfloat16."""

FLOAT32_SLACK = 2e-3
"""What adding in float32 may lose, in units of `ExactResult`'s expected size."""

Run = Callable[[int], Any]
"""Queues one call on the operand set of this index and returns the result."""


@dataclass(frozen=True)
class OperandMaker:
    """Makes operands where they are multiplied.

    Attributes:
        torch: the module.
        device: torch's name of the device.
        l2_bytes: what its L2 holds: operands are repeated until four times as much lies between two uses; 0 for one
            set.
        stream: on which calls are captured, one for all of them; None where nothing is captured.
    """

    torch: Any
    device: str = "cuda"
    l2_bytes: int = 0
    stream: Any = None

    def normal(self, *shape: int, seed: int = 0, dtype: str = "bfloat16") -> Any:
        """Normal random numbers."""
        generator = self.torch.Generator(self.device).manual_seed(seed + sum(shape))
        return self.torch.randn(shape, generator=generator, device=self.device).to(getattr(self.torch, dtype))

    def uniform(self, *shape: int, seed: int = 0) -> Any:
        """Float32 numbers from 0.5 to 1.5, as scales."""
        generator = self.torch.Generator(self.device).manual_seed(seed + sum(shape))
        return self.torch.rand(shape, generator=generator, device=self.device) + 0.5

    def result(self, *shape: int) -> Any:
        """A bfloat16 tensor of NaNs, so that an element that is not written shows."""
        return self.torch.full(shape, float("nan"), device=self.device, dtype=self.torch.bfloat16)

    def sets(self, *operands: Any) -> int:
        """How many copies of some operands L2 cannot hold."""
        return operand_sets(sum(each.nbytes for each in operands), self.l2_bytes)


def copies(tensor: Any, sets: int) -> list[Any]:
    """A tensor and further ones with its strides: a matrix or matrices, stored by rows or by columns."""
    return [tensor, *(tensor.clone() if tensor.is_contiguous() else tensor.mT.clone().mT for _ in range(sets - 1))]


@dataclass(frozen=True)
class ExactResult:
    """The exact result, to which a participant's is compared element by element.

    Operands are random numbers of either sign, so errors stay far below the worst case. They are measured against the
    size that sums of such products are expected to have, the root of the sum of their squares. An element from another
    row, column or K range is off by about that size.

    Attributes:
        product: makes the exact result and the expected sizes, both in float64.
        slack: what accumulation may lose, in expected sizes.
        rounding: what rounding the result may lose, relative to it.
    """

    product: Callable[[], tuple[Any, Any]]
    slack: float = FLOAT32_SLACK
    rounding: float = BF16_ROUNDING

    def error_of(self, found: Any) -> float:
        """The largest error of an element over what is allowed: infinite for NaN, infinities and a wrong shape."""
        exact, size = self.product()
        if tuple(found.shape) != tuple(exact.shape):
            return float("inf")
        allowed = exact.abs().mul_(self.rounding).add_(size, alpha=self.slack).add_(1e-30)
        ratio = exact.neg_().add_(found).abs_().div_(allowed)
        return float(ratio.nan_to_num_(nan=float("inf"), posinf=float("inf")).max())


def exact_product(left: Any, right: Any) -> tuple[Any, Any]:
    """Of operands of any type: their product in float64, and the expected size of its elements."""
    left, right = left.double(), right.double()
    return left @ right, (left.square_() @ right.square_()).sqrt_()


@dataclass(frozen=True)
class FeatureCall:
    """One call that takes turns with the others of its row.

    Attributes:
        name: as tables show it.
        prepare: makes what it needs and returns the call; what it raises is recorded as the participant's failure.
        sets: operand sets of the call.
        reference: its result, or None where there is nothing to compare with.
        plan: warptile's plan, compiled ahead with those of all rows; None for other libraries and grouped GEMMs.
        complaint: what else is wrong with the result, in words; empty if nothing.
    """

    name: str
    prepare: Callable[[], Run]
    sets: int = 1
    reference: ExactResult | None = None
    plan: MatmulPlan | None = None
    complaint: Callable[[Any], str] | None = None


@dataclass(frozen=True)
class FeatureRow:
    """One row.

    Attributes:
        name: unique in its suite.
        classes: names of its suite's goals that it counts for.
        make: its participants on operands of their own, warptile's first.
        read_bytes: of weights in a call, where the row is held to their rate.
    """

    name: str
    classes: tuple[str, ...]
    make: Callable[[OperandMaker], tuple[FeatureCall, ...]]
    read_bytes: int = 0
