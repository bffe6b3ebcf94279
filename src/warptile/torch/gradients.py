"""Gradients of GEMMs, which are GEMMs: with d = alpha * a @ b + beta * c and g the gradient of d,

    grad_a = alpha * g @ b.T        grad_b = alpha * a.T @ g        grad_c = beta * g

each summed over the axes that its operand was broadcast along. They are calls of `warptile.matmul` themselves, so that
gradients of gradients need nothing more. A gradient that nobody asked for is not computed.

The gradient of a result in a wider type (``out_dtype``) is rounded to the operands' type first, as a kernel takes
operands of one type. Gradients are accumulated in float32 whatever the forward pass accumulated in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from warptile.api import matmul
from warptile.errors import UnsupportedError

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Setting(NamedTuple):
    """What gradients have to know of the call beside its tensors.

    Attributes:
        alpha: factor of the product.
        beta: factor of C.
        precision, max_sms, backend, batch_invariant: as of `warptile.matmul`.
    """

    alpha: Any = 1
    beta: Any = 1
    precision: str | None = None
    max_sms: int | None = None
    backend: str | None = None
    batch_invariant: bool = False

    def product(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """``alpha * a @ b``, computed as the forward pass was."""
        found: torch.Tensor = matmul(
            a, b, alpha=self.alpha, precision=self.precision, max_sms=self.max_sms, backend=self.backend,
            batch_invariant=self.batch_invariant,
        )  # fmt: skip
        return found


def refuse_gradients(a: torch.Tensor, call: str) -> None:
    """Raise if tensors are of a type that gradients cannot be multiplied in.

    Raises:
        UnsupportedError: 8-bit floats.
    """
    if a.element_size() == 1:
        raise UnsupportedError(
            f"a: requires a gradient and is {str(a.dtype).removeprefix('torch.')}, whose gradients have no useful "
            f"range; detach it, such as {call}, and quantize inside a torch.autograd.Function"
        )


def _save(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> None:
    """Keep of two factors what their gradients need: each the other one."""
    needed = ctx.needs_input_grad
    ctx.save_for_backward(first if needed[1] else None, second if needed[0] else None)
    if forward_ad._current_level >= 0:
        ctx.save_for_forward(first, second)


def _sum(parts: list[torch.Tensor]) -> torch.Tensor | None:
    if not parts:
        return None
    found = parts[0]
    for part in parts[1:]:
        found = found + part
    return found


def matmul_gradients(
    setting: Setting,
    a: torch.Tensor | None,
    b: torch.Tensor | None,
    shapes: tuple[Any, Any, Any],
    dtype: Any,
    grad: torch.Tensor,
    wanted: tuple[bool, bool, bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Gradients of a, b and c.

    Args:
        setting: factors and options of the forward pass.
        a, b: operands; a is None where b's gradient is not wanted, and the other way round.
        shapes: of a, b and c; None for a ``c`` that there is not.
        dtype: type of a and b.
        grad: gradient of the result.
        wanted: which of the three gradients are.

    Returns:
        The gradients; None for one that is not wanted.
    """
    a_shape, b_shape, c_shape = shapes
    grad_a = grad_b = grad_c = None
    if wanted[0] or wanted[1]:
        g = grad.to(dtype)
        if len(b_shape) == 1:
            g = g.unsqueeze(-1)
        if len(a_shape) == 1:
            g = g.unsqueeze(-2)
    if wanted[0]:
        assert b is not None
        matrices = b.unsqueeze(-1) if len(b_shape) == 1 else b
        grad_a = _gradient_of_a(setting, g, matrices, a_shape)
    if wanted[1]:
        assert a is not None
        matrices = a.unsqueeze(0) if len(a_shape) == 1 else a
        grad_b = _gradient_of_b(setting, matrices, g, b_shape)
    if wanted[2] and c_shape is not None:  # behind the GEMMs, as a bias's gradient in `linear_gradients`
        grad_c = gradient_of_addend(grad, c_shape, setting.beta)
    return grad_a, grad_b, grad_c


def linear_gradients(
    setting: Setting,
    x: torch.Tensor | None,
    w: torch.Tensor | None,
    shapes: tuple[Any, Any, Any],
    dtype: Any,
    grad: torch.Tensor,
    wanted: tuple[bool, bool, bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Gradients of x, w and bias of a linear layer, given and returned as of `matmul_gradients`."""
    x_shape, w_shape, bias_shape = shapes
    grad_x = grad_w = grad_bias = None
    g = grad.to(dtype)
    if len(w_shape) == 1:
        g = g.unsqueeze(-1)
    rows = g.flatten(0, -2) if g.dim() > 1 else g.unsqueeze(0)
    if wanted[0]:
        assert w is not None
        grad_x = setting.product(rows, w if w.dim() == 2 else w.unsqueeze(0)).reshape(x_shape)
    if wanted[1]:
        assert x is not None
        grad_w = setting.product(rows.mT, x.flatten(0, -2) if x.dim() > 1 else x.unsqueeze(0)).reshape(w_shape)
    if wanted[2]:  # behind the GEMMs: a compiler has stored the gradient for them by then, and computes it once
        grad_bias = grad.sum_to_size(bias_shape)
    return grad_x, grad_w, grad_bias


def gradient_of_addend(grad: torch.Tensor, shape: Any, beta: Any) -> torch.Tensor:
    """``beta * grad``, summed over the axes along which an addend of this shape was broadcast."""
    return grad.new_zeros(shape) if beta == 0 else _scaled(grad.sum_to_size(shape), beta)


def matmul_tangent(setting: Setting, a: Any, b: Any, along_a: Any, along_b: Any, along_c: Any) -> torch.Tensor | None:
    """The derivative of a matmul along tangents of a, b and c, each None where it has no tangent."""
    parts = [] if along_a is None else [setting.product(along_a, b)]
    parts += [] if along_b is None else [setting.product(a, along_b)]
    parts += [] if along_c is None else [_scaled(along_c, setting.beta)]
    return _sum(parts)


def _gradient_of_a(setting: Setting, g: torch.Tensor, b: torch.Tensor, shape: Any) -> torch.Tensor:
    """``alpha * g @ b.T`` summed over the axes that ``a``, of this shape, lacks. Shapes (.., M, N) and (.., K, N)."""
    if b.dim() == 2 and g.dim() > 2:  # one matrix for all rows of a: one GEMM with all these rows
        return setting.product(g.flatten(0, -2), b.mT).reshape(shape)
    if len(shape) <= 2 and b.dim() > 2:  # a is repeated: its sum is a longer dot product
        rows = g.movedim(-2, 0).flatten(1)
        return setting.product(rows, b.mT.flatten(0, -2)).reshape(shape)
    return _summed(setting.product(g, b.mT), shape)


def _gradient_of_b(setting: Setting, a: torch.Tensor, g: torch.Tensor, shape: Any) -> torch.Tensor:
    """``alpha * a.T @ g`` summed over the axes that ``b``, of this shape, lacks. Shapes (.., M, K) and (.., M, N)."""
    if len(shape) <= 2 and a.dim() > 2:
        return setting.product(a.flatten(0, -2).mT, g.flatten(0, -2)).reshape(shape)
    return _summed(setting.product(a.mT, g), shape)


def _summed(gradient: torch.Tensor, shape: Any) -> torch.Tensor:
    """Summed over the axes along which a tensor of this shape was broadcast; an axis of a 1-D operand goes."""
    if len(shape) == 1:
        return gradient.reshape(shape)
    return gradient.sum_to_size(shape)


def _scaled(gradient: torch.Tensor, factor: Any) -> torch.Tensor:
    return gradient if factor == 1 else gradient * factor


class MatmulFunction(torch.autograd.Function):
    """Records a matmul for backward passes."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, c: Any, setting: Setting, compute: Any) -> Any:
        """``compute()``, which multiplies; it runs with gradients disabled."""
        refuse_gradients(a, "matmul(a.detach(), b.detach())")
        _save(ctx, a, b)
        ctx.said = setting, (a.shape, b.shape, None if c is None else c.shape), a.dtype
        return compute()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Gradients of a, b and c."""
        a, b = ctx.saved_tensors
        setting, shapes, dtype = ctx.said
        return *matmul_gradients(setting, a, b, shapes, dtype, grad, ctx.needs_input_grad[:3]), None, None

    @staticmethod
    def jvp(ctx: Any, along_a: Any, along_b: Any, along_c: Any, *_: Any) -> Any:
        """The derivative along tangents of a, b and c (forward mode); None for no tangent."""
        a, b = ctx.saved_tensors
        return matmul_tangent(ctx.said[0], a, b, along_a, along_b, along_c)


class LinearFunction(torch.autograd.Function):
    """Records a linear layer for backward passes."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, bias: Any, setting: Setting, compute: Any) -> Any:
        """``compute()``, which multiplies; it runs with gradients disabled."""
        refuse_gradients(x, "linear(x.detach(), w.detach())")
        _save(ctx, x, w)
        ctx.said = setting, (x.shape, w.shape, None if bias is None else bias.shape), x.dtype
        return compute()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Gradients of x, w and bias."""
        x, w = ctx.saved_tensors
        setting, shapes, dtype = ctx.said
        return *linear_gradients(setting, x, w, shapes, dtype, grad, ctx.needs_input_grad[:3]), None, None

    @staticmethod
    def jvp(ctx: Any, along_x: Any, along_w: Any, along_bias: Any, *_: Any) -> Any:
        """The derivative along tangents of x, w and bias (forward mode); None for no tangent."""
        x, w = ctx.saved_tensors
        setting = ctx.said[0]
        parts = [] if along_x is None else [setting.product(along_x, w.mT if w.dim() == 2 else w)]
        parts += [] if along_w is None else [setting.product(x, along_w.mT if w.dim() == 2 else along_w)]
        parts += [] if along_bias is None else [along_bias]
        return _sum(parts)


# torch.autograd.Function.apply looks for transforms of torch.func, which operators have behind them, before it calls
# this one: a third of the time that recording takes.
record_matmul: Any = super(torch.autograd.Function, MatmulFunction).apply
record_linear: Any = super(torch.autograd.Function, LinearFunction).apply


def is_recorded(*tensors: Any) -> bool:
    """Whether a call on these tensors, or None, has a derivative to record: backwards, or forwards."""
    if torch.is_grad_enabled() and torch._C._any_requires_grad(*tensors):
        return True
    if forward_ad._current_level < 0:
        return False
    if torch._C._are_functorch_transforms_active():  # its tensors cannot always be unpacked
        return True
    return any(forward_ad.unpack_dual(each).tangent is not None for each in tensors if each is not None)


def is_direct(*tensors: Any) -> bool:
    """Whether nothing but the gradient has to be seen of a call on these tensors."""
    return are_plain(*tensors) and not torch._C._is_any_autocast_enabled()


def are_plain(*tensors: Any) -> bool:
    """Whether nothing but the gradient, and autocast, has to be seen of a call on these tensors."""
    for each in tensors:
        if each is not None and (type(each) not in _PLAIN or each.is_meta):
            return False
    return not (torch._C._are_functorch_transforms_active() or torch._C._len_torch_dispatch_stack())


def below_autograd(operator: Any, keyset: Any, *arguments: Any, **options: Any) -> Any:
    """``operator`` without this level's recording: its next kernel, for a kernel that is registered for ``Autograd``.

    Where `torch.func` transforms, the next kernel may be the next transform's. What records a call disables recording
    inside it, so it is enabled again for those.
    """
    keyset &= torch._C._after_autograd_keyset
    if torch._C._are_functorch_transforms_active():
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keyset, *arguments, **options)
    with torch._C._AutoDispatchBelowAutograd():
        return operator.redispatch(keyset, *arguments, **options)


def recorded(record: Any, *arguments: Any) -> Any:
    """``record(*arguments)``, inside a dispatched operator: under a transform of torch.func too."""
    if not torch._C._are_functorch_transforms_active():
        return record(*arguments)
    with enable_single_level_autograd_function():
        return record(*arguments)
