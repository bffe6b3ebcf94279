"""Feed-forward blocks whose gradients torch records, with the activation in the GEMMs on both sides of it.

Going forward, the GEMM before the activation also stores what the activation is of. Going backward, the GEMM that makes
the hidden layer's gradient multiplies it with the activation's derivative: the epilogue reads what was stored. So the
activation takes no pass over memory of its own in either direction.

Where the backward pass is differentiated itself, it is that of the same block made of layers, which is computed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch.autograd import forward_ad

from warptile.api import matmul
from warptile.epilogue.derivative import PARTIALS
from warptile.epilogue.program_text import replayed
from warptile.epilogue.tracing import trace
from warptile.linear_call import linear
from warptile.torch.activations import ACTIVATIONS, EPILOGUES
from warptile.torch.gradients import are_plain
from warptile.torch.linear_layer import is_plain
from warptile.torch_route import constant_to_dynamo, is_cast

Layer = tuple[Any, Any]
"""Weight and bias, or None for no bias."""

Operands = tuple[Any, ...]
"""Input of a block, and weight and bias of each layer."""


def operands_of_block(x: torch.Tensor, *layers: torch.nn.Linear) -> Operands | None:
    """What a block of these layers multiplies, cast as autocast does, if it is best recorded as one operation. None if
    it is not: no gradient is recorded, values have not 16 bits, somebody looks at the layers' calls, or the program is
    exported, which is for inference."""
    if not torch.is_grad_enabled() or not all(map(is_plain, layers)) or torch.compiler.is_exporting():
        return None
    given = [x]
    for layer in layers:
        given += [layer.weight, layer.bias]
    if not any(each is not None and each.requires_grad for each in given):
        return None
    if torch.compiler.is_compiling():
        if _is_transformed():
            return None
    elif forward_ad._current_level >= 0 or not are_plain(*given):
        return None
    if is_cast(torch, [each for each in given if each is not None]):
        dtype = torch.get_autocast_dtype(x.device.type)
        given = [each.to(dtype) if each is not None and each.dtype == torch.float32 else each for each in given]
    dtype = given[0].dtype
    if dtype.itemsize != 2 or any(each is not None and each.dtype != dtype for each in given):
        return None
    return tuple(given)


@constant_to_dynamo
def _is_transformed() -> bool:
    """Whether `torch.func` transforms what is called here. (Dynamo guards it.)"""
    found: bool = torch._C._are_functorch_transforms_active()
    return found


def feed_forward(activation: str, operands: Operands) -> torch.Tensor:
    """``down(activation(up(x)))``, recorded as one operation, of `operands_of_block` with layers up and down."""
    x, *up_and_down = operands
    return _recorded(activation, x, None, None, *up_and_down)


def gated_feed_forward(activation: str, operands: Operands) -> torch.Tensor:
    """``down(activation(gate(x)) * up(x))``, recorded as one operation; layers are gate, up and down."""
    return _recorded(activation, *operands)


def _recorded(*arguments: Any) -> torch.Tensor:
    record = FeedForward.apply if torch.compiler.is_compiling() else _record
    found: torch.Tensor = record(*arguments)
    return found


# --- epilogues --------------------------------------------------------------------------------------------------------


def _forward(name: str, *, gated: bool) -> Callable[..., Any]:
    """Of the GEMM before the activation: the hidden layer, and what the activation is of."""
    function = EPILOGUES[name]
    if gated:
        return lambda acc, up: (function(acc) * up, acc)
    return lambda acc: (function(acc), acc)


def _backward(name: str, *, gated: bool) -> Callable[..., Any]:
    """Of the GEMM that makes the hidden layer's gradient: the gradients of ``kept``, what the activation is of, and of
    ``up``."""
    function, (slope,) = EPILOGUES[name], PARTIALS[name]
    assert slope is not None
    if gated:
        return lambda acc, kept, up: (slope(acc * up, function(kept), kept), acc * function(kept))
    return lambda acc, kept: slope(acc, function(kept), kept)


def _epilogue(made: Callable[..., Callable[..., Any]], name: str, *names: str) -> Callable[..., Any]:
    """One of the above, with operands of these names: traced once, or as it is for Dynamo to trace."""
    if torch.compiler.is_compiling():
        return made(name, gated="up" in names)
    return _traced(made, name, names)


@cache
def _traced(made: Callable[..., Callable[..., Any]], name: str, names: tuple[str, ...]) -> Callable[..., Any]:
    return replayed(trace(made(name, gated="up" in names), dict.fromkeys(names)))


# --- the recorded operation -------------------------------------------------------------------------------------------


class FeedForward(torch.autograd.Function):
    """Records a block. With a gate, ``x`` goes through ``gate`` and ``up``; without one those of ``gate`` are None."""

    @staticmethod
    def forward(ctx: Any, activation: str, x: Any, *parameters: Any) -> Any:
        """The block's result; with gradients disabled."""
        gate, up, down = _layers(parameters)
        rows = x.reshape(-1, x.shape[-1])
        above = None
        if gate is None:
            hidden, kept = linear(rows, *up, epilogue=_epilogue(_forward, activation))
        else:
            above = linear(rows, *up)
            hidden, kept = linear(rows, *gate, epilogue=_epilogue(_forward, activation, "up"), up=above)
        ctx.save_for_backward(x, hidden, kept, above, *parameters)
        ctx.activation = activation
        return linear(hidden, *down).reshape(*x.shape[:-1], down[0].shape[0])

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Gradients of x and of the parameters."""
        x, hidden, kept, above, *parameters = ctx.saved_tensors
        gate, up, down = _layers(parameters)
        wanted = dict(zip(_INPUTS, ctx.needs_input_grad[1:], strict=True))
        compiling = torch.compiler.is_compiling()
        if not compiling and (torch.is_grad_enabled() or not are_plain(gradient, x, *parameters)):
            return None, *_through_layers(ctx.activation, x, parameters, gradient, tuple(wanted.values()))
        rows, of_result = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
        found: dict[str, Any] = dict(_of_layer("down", of_result, hidden, wanted))
        if any(wanted[name] for name in wanted if not name.startswith("down")):
            if gate is None:
                epilogue = _epilogue(_backward, ctx.activation, "kept")
                of_up = matmul(of_result, down[0], epilogue=epilogue, kept=kept)
            else:
                epilogue = _epilogue(_backward, ctx.activation, "kept", "up")
                of_gate, of_up = matmul(of_result, down[0], epilogue=epilogue, kept=kept, up=above)
                found |= _of_layer("gate", of_gate, rows, wanted)
            found |= _of_layer("up", of_up, rows, wanted)
            if wanted["x"]:
                of_x = matmul(of_up, up[0])
                if gate is not None:
                    of_x = matmul(of_gate, gate[0], of_x, beta=1)
                found["x"] = of_x.reshape(x.shape)
        return None, *(found.get(name) for name in wanted)


_INPUTS = ("x", "gate", "gate bias", "up", "up bias", "down", "down bias")


def _layers(parameters: Any) -> tuple[Layer | None, Layer, Layer]:
    """Weight and bias of gate, up and down."""
    gate, gate_bias, up, up_bias, down, down_bias = parameters
    return None if gate is None else (gate, gate_bias), (up, up_bias), (down, down_bias)


def _of_layer(name: str, gradient: Any, rows: Any, wanted: Mapping[str, bool]) -> dict[str, Any]:
    """Gradients of a layer's weight and bias, from those of its results and what it was given."""
    found = {}
    if wanted[name]:
        found[name] = matmul(gradient.T, rows)
    if wanted[f"{name} bias"]:
        found[f"{name} bias"] = gradient.sum(0)
    return found


def _through_layers(activation: str, x: Any, parameters: Any, gradient: Any, wanted: tuple[bool, ...]) -> list[Any]:
    """The same gradients by torch, of the block made of layers; differentiable where gradients are recorded."""
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        gate, up, down = _layers(parameters)
        function = ACTIVATIONS[activation]
        above = linear(x, *up)
        hidden = function(above) if gate is None else function(linear(x, *gate)) * above
        inputs = [each for each, needs in zip((x, *parameters), wanted, strict=True) if needs]
        found = iter(torch.autograd.grad(linear(hidden, *down), inputs, gradient, create_graph=differentiable))
    return [next(found) if needs else None for needs in wanted]


_record: Any = super(torch.autograd.Function, FeedForward).apply
