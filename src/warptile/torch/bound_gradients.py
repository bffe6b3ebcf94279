"""Calls that are bound and whose gradient is recorded: a training step's calls, without planning or dispatching.

Of two matrices, and of linear layers, the GEMMs of the backward pass are bound too, after the first one: `BoundProduct`
keeps them, and no view of a transposed operand is made any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from warptile.calls.call_options import OPTIONS, options_of
from warptile.linear_call import LINEAR, OPTIONS_OF_LINEAR
from warptile.torch.gradients import (
    Setting,
    gradient_of_addend,
    linear_gradients,
    matmul_gradients,
    record_matmul,
    refuse_gradients,
)

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
    if options[0] == LINEAR:
        return None
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
        of_a, of_b: the GEMM of a's gradient, of the result's gradient and b; and that of b's, of a and the result's
            gradient. None for one that is not bound.
    """

    agrees: Callable[..., bool]
    forgotten: int
    of_a: BoundCall | None
    of_b: BoundCall | None


class BoundProduct:
    """``alpha * a @ b + beta * c`` of two matrices, bound, whose gradient is recorded.

    Args:
        calls: where calls are bound.
        found: this one.
        setting: what gradients have to know.
        a, b, c: arrays of such a call; shapes, types and what requires a gradient are looked at.

    Attributes:
        calls, found: as given.
        needs_a, needs_b: whether a gradient needs this operand: that of the other one.
    """

    long_way: ClassVar[Callable[..., tuple[Any, Any, Any]]] = staticmethod(matmul_gradients)
    grad_first = False
    """Whether A of the GEMM of b's gradient is the result's gradient."""

    def __init__(self, calls: TorchCalls, found: BoundCall, setting: Setting, a: Any, b: Any, c: Any) -> None:
        self.calls, self.found = calls, found
        self.needs_a, self.needs_b = b.requires_grad, a.requires_grad
        self._setting, self._dtype = setting, a.dtype
        self._shapes = a.shape, b.shape, None if c is None else c.shape
        self._options = options_of(**(setting._asdict() | {"beta": None}))
        self._backward: _Backward | None = None

    def recorded(self, a: Any, b: Any, c: Any) -> Any:
        """The product with its gradient recorded, or None inside a mode of torch that sees operators."""
        return None if torch._C._len_torch_dispatch_stack() else _record(a, b, c, self)

    def gradients(self, a: Any, b: Any, grad: Any, wanted: tuple[bool, bool, bool]) -> tuple[Any, Any, Any]:
        """Gradients of a, b and c.

        Args:
            a, b: the saved operands; None for one whose other has no gradient.
            grad: gradient of the product.
            wanted: whether each of the three gradients is.
        """
        kept = self._backward
        tensors = [each for each in (grad, a, b) if each is not None]
        plain = not (torch.is_grad_enabled() or torch._C._len_torch_dispatch_stack())
        if kept is not None and plain and kept.forgotten == self.calls.forgotten and kept.agrees(*tensors):
            found = self._launched(kept, a, b, grad, wanted)
            if found is not None:
                return found
        of_a, of_b, of_c = self.long_way(self._setting, a, b, self._shapes, self._dtype, grad, wanted)
        if plain:
            self._keep(a, b, grad, tensors)
        return of_a, of_b, of_c

    def _launched(
        self, kept: _Backward, a: Any, b: Any, grad: Any, wanted: tuple[bool, bool, bool]
    ) -> tuple[Any, Any, Any] | None:
        """Gradients by the GEMMs that are kept, or None where one is not, or an address is aligned less than usual."""
        calls, of_a, of_b = self.calls, kept.of_a, kept.of_b
        at_grad = grad.data_ptr()
        at_a, at_b = 0 if a is None else a.data_ptr(), 0 if b is None else b.data_ptr()
        if (at_grad | at_a | at_b) & 15:
            return None
        for wants, gemm in zip(wanted, (of_a, of_b), strict=False):
            if wants and (gemm is None or calls.is_cast(gemm)):
                return None
        grad_a = grad_b = grad_c = None
        if wanted[0]:
            assert of_a is not None
            grad_a = calls.launched(of_a, at_grad, at_b, 0, 0, None)
        if wanted[1]:
            assert of_b is not None
            first, second = (at_grad, at_a) if self.grad_first else (at_a, at_grad)
            grad_b = calls.launched(of_b, first, second, 0, 0, None)
        if wanted[2]:
            grad_c = self._gradient_of_addend(grad)
        return grad_a, grad_b, grad_c

    def _gradient_of_addend(self, grad: Any) -> Any:
        """As of `warptile.torch.gradients`; of a bias by a sum over named axes, which costs less than by extents."""
        shape, beta = self._shapes[2], self._setting.beta
        if beta == 1 and shape is not None and len(shape) == 1 and shape[0] == grad.shape[-1]:
            return grad.sum(tuple(range(grad.dim() - 1)))
        return gradient_of_addend(grad, shape, beta)

    def _keep(self, a: Any, b: Any, grad: Any, tensors: list[Any]) -> None:
        """Keep the GEMMs of this backward pass if they have been bound."""
        guards = tensor_guards()
        if guards is None or grad.dtype != self._dtype or any(each.data_ptr() & 15 for each in tensors):
            return
        forgotten = self.calls.forgotten
        of_a, of_b = self._bound(a, b, grad)
        if of_a is not None or of_b is not None:
            made = guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
            self._backward = _Backward(made.check, forgotten, of_a, of_b)

    def _bound(self, a: Any, b: Any, grad: Any) -> tuple[BoundCall | None, BoundCall | None]:
        """The GEMMs of both gradients, as far as they are bound."""
        of_a = None if b is None else self.calls.bound(grad, b.mT, self._options)
        of_b = None if a is None else self.calls.bound(a.mT, grad, self._options)
        return of_a, of_b


class BoundLinear(BoundProduct):
    """``x @ w.T + bias``, all rows of ``x`` in one GEMM, bound, whose gradient is recorded. ``a``, ``b`` and ``c`` are
    x, w and bias."""

    long_way: ClassVar[Callable[..., tuple[Any, Any, Any]]] = staticmethod(linear_gradients)
    grad_first = True

    def _bound(self, a: Any, b: Any, grad: Any) -> tuple[BoundCall | None, BoundCall | None]:
        rows = grad.flatten(0, -2)
        if not self.calls.shares_memory(grad, rows):
            return None, None
        of_x = None if b is None else self.calls.bound(rows, b, self._options)
        of_w = None
        if a is not None and self.calls.shares_memory(a, a.flatten(0, -2)):
            of_w = self.calls.bound(rows.mT, a.flatten(0, -2), self._options)
        return None if of_x is None else replace(of_x, shape=tuple(self._shapes[0])), of_w


@lru_cache(maxsize=1)
def tensor_guards() -> Any:
    """torch's own comparison of tensors with others, as compiled code of torch has it, where this torch has it."""
    return getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "TensorGuards", None)


def recorder_of(
    calls: TorchCalls, found: BoundCall, a: Any, b: Any, c: Any, options: tuple[Any, ...]
) -> Callable[[Any, Any, Any], Any] | None:
    """What makes this bound call and records its gradient, or None where it is no product of two matrices, or takes the
    long way."""
    if options[0] == LINEAR:
        said = dict(zip(OPTIONS_OF_LINEAR, options[1:], strict=True))
        setting = Setting(1, 1, said["precision"], said["max_sms"], said["backend"], said["batch_invariant"])
        refuse_gradients(a, "linear(x.detach(), w.detach())")
        return BoundLinear(calls, found, setting, a, b, c).recorded if a.dim() > 1 else None
    setting_of_matmul = _setting(options)
    if setting_of_matmul is None or a.dim() != 2 or b.dim() != 2:
        return None
    refuse_gradients(a, "matmul(a.detach(), b.detach())")
    return BoundProduct(calls, found, setting_of_matmul, a, b, c).recorded


class BoundFunction(torch.autograd.Function):
    """Records a `BoundProduct` for backward passes. Calls with tangents (forward mode) are not bound."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, c: Any, product: BoundProduct) -> Any:
        """The product."""
        ctx.save_for_backward(a if product.needs_a else None, b if product.needs_b else None)
        ctx.product = product
        at_c = 0 if c is None else c.data_ptr()
        return product.calls.launched(product.found, a.data_ptr(), b.data_ptr(), at_c, 0, None)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Gradients of a, b and c."""
        a, b = ctx.saved_tensors
        return *ctx.product.gradients(a, b, grad, ctx.needs_input_grad[:3]), None


_record: Any = super(torch.autograd.Function, BoundFunction).apply  # as in `warptile.torch.gradients`
