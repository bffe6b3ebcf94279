"""Calls that torch has to see: those that record gradients, are cast by autocast, or run on tensors without memory.

A call on plain tensors goes straight to a kernel. Tensors that require gradients, tensors under autocast, tensors
of ``vmap`` and ``grad``, FakeTensors and tensors on the device ``meta`` go through the operators of `warptile.torch`,
which is imported when the first such tensor is given. Dynamo, which traces Python rather than runs it, is shown
`traced_matmul` in place of `warptile.matmul`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

SAID = (
    "alpha", "beta", "scale_a", "scale_b", "out_dtype", "accumulate", "precision", "rung", "config", "max_sms",
    "backend", "batch_invariant",
)  # fmt: skip
"""Keywords of `warptile.matmul` that are no arrays and no epilogue."""


def requires_gradient(*arrays: Any) -> bool:
    """Whether these (None for what is not given) are tensors and the gradient of one of them is recorded."""
    for each in arrays:
        if getattr(each, "requires_grad", False):
            torch: Any = sys.modules.get("torch")
            if torch is None or not torch.is_grad_enabled():
                return False
            return all(other is None or isinstance(other, torch.Tensor) for other in arrays)
    return False


def torch_sees(a: Any, b: Any, c: Any, out: Any, operands: Collection[Any] = ()) -> bool:
    """Whether a call on these arrays goes through an operator of torch.

    Args:
        a, b, c, out: as given by the caller; None for what is not given.
        operands: of an epilogue; not all have to be tensors.

    Returns:
        True for tensors whose gradient is recorded, that autocast casts, or that have no memory of their own. A call
        with ``out`` records no gradient and is not cast, as in torch.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return False
    given = [a, b] if c is None else [a, b, c]
    if not isinstance(given[-1], torch.Tensor):
        return False
    multiplied = given
    if operands:
        given = [*given, *(each for each in operands if isinstance(each, torch.Tensor))]
    if out is None:
        if torch.is_grad_enabled() and any(each.requires_grad for each in given):
            return True
        if is_cast(torch, multiplied):
            return True
    elif isinstance(out, torch.Tensor):
        given.append(out)
    return any(has_no_memory(torch, each) for each in given) or (out is None and _has_tangents(torch, given))


def is_cast(torch: Any, tensors: list[Any]) -> bool:
    """Whether autocast is on and changes the type of one of ``tensors``: it casts float32, and leaves 16-bit floats."""
    device = tensors[0].device.type
    return (
        device in ("cuda", "cpu")
        and torch.is_autocast_enabled(device)
        and any(each.dtype == torch.float32 for each in tensors)
    )


def _has_tangents(torch: Any, tensors: list[Any]) -> bool:
    """Whether one of ``tensors`` has a tangent, for derivatives in forward mode."""
    modes = torch.autograd.forward_ad
    return modes._current_level >= 0 and any(modes.unpack_dual(each).tangent is not None for each in tensors)


def has_no_memory(torch: Any, tensor: Any) -> bool:
    """Whether ``tensor`` stands for others: a subclass, one that `torch.func` transforms, or one on ``meta``."""
    return (
        type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        or tensor.device.type == "meta"
    )


def matmul_in_torch(a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
    """`warptile.matmul` by an operator of torch.

    Args:
        a, b, c, out: tensors.
        options: as in `warptile.calls.call_options.OPTIONS`.

    Returns:
        As `warptile.matmul`.
    """
    from warptile.torch.calls import matmul_call

    return matmul_call(a, b, c, out, options)


def fused_in_torch(a: Any, b: Any, c: Any, options: dict[str, Any], epilogue: Any, operands: Mapping[str, Any]) -> Any:
    """`warptile.matmul` with an epilogue, of tensors for which `torch_sees` said yes.

    Args:
        a, b, c: tensors.
        options: the other keywords of `warptile.matmul`, without ``out``.
        epilogue, operands: as given.
    """
    from warptile.torch.epilogue_calls import fused_call

    return fused_call(a, b, c, options, epilogue, operands)


def linear_in_torch(x: Any, w: Any, bias: Any, options: dict[str, Any]) -> Any:
    """`warptile.linear` by an operator of torch."""
    from warptile.torch.calls import linear_call

    return linear_call(x, w, bias, options)


def traced_matmul(a: Any, b: Any, /, c: Any = None, *, epilogue: Any = None, out: Any = None, **options: Any) -> Any:
    """What Dynamo traces instead of `warptile.matmul`."""
    given = [options.get(name) for name in ("scale_a", "scale_b", "scale_d")]
    if any(each is not None for each in given) or options.get("amax"):
        from warptile.torch.epilogue_calls import traced_scaled_call

        found = traced_scaled_call(a, b, c, out, options, epilogue)
        if found is not None:
            return found
    options.pop("amax", None)
    options.pop("scale_d", None)
    if epilogue is None:
        from warptile.torch.calls import traced_matmul_call

        return traced_matmul_call(a, b, c, out=out, **options)
    from warptile.torch.epilogue_calls import traced_fused_call

    said = {name: each for name, each in options.items() if name in SAID}
    operands = {name: each for name, each in options.items() if name not in SAID}
    return traced_fused_call(a, b, c, out, said, epilogue, operands)


def traced_plan(held: Any, a: Any, b: Any, /, c: Any = None, *, out: Any = None, **operands: Any) -> Any:
    """What Dynamo traces instead of a call of a `warptile.MatmulPlan`."""
    from warptile.torch.epilogue_calls import traced_plan_call

    return traced_plan_call(held, a, b, c, out, operands)


def traced_linear(x: Any, w: Any, bias: Any = None, *, epilogue: Any = None, **options: Any) -> Any:
    """What Dynamo traces instead of `warptile.linear`."""
    if epilogue is None:
        from warptile.torch.calls import traced_linear_call

        return traced_linear_call(x, w, bias, **options)
    from warptile.torch.epilogue_calls import traced_fused_linear

    said = {name: each for name, each in options.items() if name in SAID}
    operands = {name: each for name, each in options.items() if name not in SAID}
    return traced_fused_linear(x, w, bias, said, epilogue, operands)


def grouped_in_torch(a: Any, b: Any, offsets: Any, out_dtype: Any) -> Any:
    """`warptile.matmul_grouped` by an operator of torch."""
    from warptile.torch.grouped_operator import grouped_call

    return grouped_call(a, b, offsets, out_dtype)


def traced_grouped(a: Any, b: Any, offsets: Any, *, out_dtype: Any = None) -> Any:
    """What Dynamo traces instead of `warptile.matmul_grouped`; ``out``, scales and the backend cannot be said there."""
    return grouped_in_torch(a, b, offsets, out_dtype)


def shown_to_dynamo(function: Callable[..., Any], traced: Callable[..., Any]) -> None:
    """Have Dynamo trace another function in place of ``function``.

    The attribute is the one by which torch itself replaces functions that it has wrapped (``torch.jit.script``,
    ``torch.compile``; ``UserFunctionVariable`` in ``torch/_dynamo/variables/functions.py`` reads it). Setting it needs
    no torch and costs a call nothing.
    """
    function._torchdynamo_inline = traced  # type: ignore[attr-defined]


def constant_to_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have Dynamo call a function while it traces, as ``torch.compiler.assume_constant_result`` does; that one imports
    the compiler."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
