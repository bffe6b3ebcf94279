"""Calls that are bound and whose gradient is recorded: a training step's calls, without planning or dispatching.

Of two matrices the GEMMs of the backward pass are bound too, after the first one: `BoundProduct` keeps them, and no
view of a transposed operand is made any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from warptile.api import OPTIONS
from warptile.torch.gradients import Setting, matmul_gradients, record_matmul, refuse_gradients

if TYPE_CHECKING:  # without a GPU nothing that drives one is loaded
    from warptile.runtime.bound_call import BoundCall
    from warptile.runtime.torch_calls import TorchCalls


@lru_cache(maxsize=1024)
def _setting(options: tuple[Any, ...]) -> Setting | None:
    """What gradients have to know of a call with these options; None where it takes the long way."""
    said = dict(zip(OPTIONS, options, strict=True))
    if any(said[name] is not None for name in ("epilogue", "scale_a", "scale_b", "config")):
        return None
    beta = 1 if said["beta"] is None else said["beta"]
    return Setting(said["alpha"], beta, said["precision"], said["max_sms"], said["backend"], said["batch_invariant"])


def recorded_call(calls: TorchCalls, found: BoundCall, a: Any, b: Any, c: Any, options: tuple[Any, ...]) -> Any:
    """The result of a bound call with its gradient recorded, or None where it has to take the long way."""
    setting = _setting(options)
    if setting is None or torch._C._len_torch_dispatch_stack():
        return None

    def launch() -> Any:
        return calls.launched(found, a.data_ptr(), b.data_ptr(), 0 if c is None else c.data_ptr(), 0, None)

    return record_matmul(a, b, c, setting, launch)


@dataclass(frozen=True, slots=True)
class _Backward:
    """The bound GEMMs of a backward pass.

    Attributes:
        agrees: whether the gradient and the saved operands are as when these were bound.
        forgotten: of the cache, as it was then.
        of_a, of_b: ``grad @ b.T`` and ``a.T @ grad``; None for a gradient that was not wanted.
    """

    agrees: Callable[..., bool]
    forgotten: int
    of_a: BoundCall | None
    of_b: BoundCall | None


class BoundProduct:
    """``alpha * a @ b`` of two matrices, bound, whose gradient is recorded.

    Args:
        calls: where calls are bound.
        found: this one.
        setting: what gradients have to know.
        a, b: operands of such a call; shapes, types and what requires a gradient are looked at.

    Attributes:
        calls, found: as given.
        needs_a, needs_b: whether a gradient needs this operand: that of the other one.
    """

    def __init__(self, calls: TorchCalls, found: BoundCall, setting: Setting, a: Any, b: Any) -> None:
        self.calls, self.found = calls, found
        self.needs_a, self.needs_b = b.requires_grad, a.requires_grad
        self._setting, self._shapes, self._dtype = setting, (a.shape, b.shape, None), a.dtype
        said = setting._asdict() | {"beta": None}
        self._options = tuple(said.get(name, False if name == "batch_invariant" else None) for name in OPTIONS)
        self._backward: _Backward | None = None

    def recorded(self, a: Any, b: Any) -> Any:
        """The product with its gradient recorded, or None inside a mode of torch that sees operators."""
        return None if torch._C._len_torch_dispatch_stack() else _record(a, b, self)

    def gradients(self, a: Any, b: Any, grad: Any, wanted: tuple[bool, ...]) -> tuple[Any, Any]:
        """Gradients of a and b.

        Args:
            a, b: the saved operands; None for one whose other has no gradient.
            grad: gradient of the product.
            wanted: whether each of the two gradients is.
        """
        kept = self._backward
        tensors = [each for each in (grad, a, b) if each is not None]
        plain = not (torch.is_grad_enabled() or torch._C._len_torch_dispatch_stack())
        if kept is not None and plain and kept.forgotten == self.calls.forgotten and kept.agrees(*tensors):
            found = self._launched(kept, a, b, grad, wanted)
            if found is not None:
                return found
        grad_a, grad_b, _ = matmul_gradients(
            self._setting, a, b, self._shapes, self._dtype, grad, (wanted[0], wanted[1], False)
        )
        if plain:
            self._keep(a, b, grad, tensors)
        return grad_a, grad_b

    def _launched(self, kept: _Backward, a: Any, b: Any, grad: Any, wanted: tuple[bool, ...]) -> tuple[Any, Any] | None:
        """Gradients by the GEMMs that are kept, or None where one is not, or an address is aligned less than usual."""
        calls, of_a, of_b = self.calls, kept.of_a, kept.of_b
        at_grad = grad.data_ptr()
        at_a, at_b = 0 if a is None else a.data_ptr(), 0 if b is None else b.data_ptr()
        if (at_grad | at_a | at_b) & 15:
            return None
        grad_a = grad_b = None
        if wanted[0]:
            if of_a is None or calls.is_cast(of_a):
                return None
            grad_a = calls.launched(of_a, at_grad, at_b, 0, 0, None)
        if wanted[1]:
            if of_b is None or calls.is_cast(of_b):
                return None
            grad_b = calls.launched(of_b, at_a, at_grad, 0, 0, None)
        return grad_a, grad_b

    def _keep(self, a: Any, b: Any, grad: Any, tensors: list[Any]) -> None:
        """Keep the GEMMs of this backward pass if they have been bound."""
        guards = _guards()
        if guards is None or grad.dtype != self._dtype or any(each.data_ptr() & 15 for each in tensors):
            return
        calls, forgotten = self.calls, self.calls.forgotten
        of_a = None if b is None else calls.bound(grad, b.mT, self._options)
        of_b = None if a is None else calls.bound(a.mT, grad, self._options)
        if of_a is not None or of_b is not None:
            made = guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
            self._backward = _Backward(made.check, forgotten, of_a, of_b)


@lru_cache(maxsize=1)
def _guards() -> Any:
    """torch's own comparison of tensors with others, as compiled code of torch has it, where this torch has it."""
    return getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "TensorGuards", None)


def recorder_of(
    calls: TorchCalls, found: BoundCall, a: Any, b: Any, options: tuple[Any, ...]
) -> Callable[[Any, Any], Any] | None:
    """What makes this bound call and records its gradient, or None where it is no product of two matrices, or takes the
    long way."""
    setting = _setting(options)
    if setting is None or a.dim() != 2 or b.dim() != 2:
        return None
    refuse_gradients(a, "matmul(a.detach(), b.detach())")
    return BoundProduct(calls, found, setting, a, b).recorded


class BoundMatmulFunction(torch.autograd.Function):
    """Records a `BoundProduct` for backward passes. Calls with tangents (forward mode) are not bound."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, product: BoundProduct) -> Any:
        """The product."""
        ctx.save_for_backward(a if product.needs_a else None, b if product.needs_b else None)
        ctx.product = product
        return product.calls.launched(product.found, a.data_ptr(), b.data_ptr(), 0, 0, None)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Gradients of a and b."""
        a, b = ctx.saved_tensors
        return *ctx.product.gradients(a, b, grad, ctx.needs_input_grad), None


_record: Any = super(torch.autograd.Function, BoundMatmulFunction).apply  # as in `warptile.torch.gradients`
