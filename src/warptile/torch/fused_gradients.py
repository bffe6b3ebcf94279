"""Epilogues whose gradients torch records: the forward pass is fused, and keeps the accumulators as a further output.

The backward pass evaluates the epilogue once more, with torch's own operations on what was kept, to get the gradients
of the accumulators and of the epilogue's operands; those of A and B are GEMMs, as of any matmul.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from warptile import api
from warptile.arrays.options import beta_of, number
from warptile.epilogue import expressions
from warptile.epilogue.epilogue_program import ACCUMULATOR, CAST, CONSTANT, UNIFORM, Program
from warptile.epilogue.philox import uniform
from warptile.epilogue.tracing import trace
from warptile.errors import UnsupportedError
from warptile.torch.gradients import Setting, matmul_gradients, refuse_gradients
from warptile.torch.results import torch_type

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.true_divide,
    "negative": torch.neg, "less": torch.lt, "less_equal": torch.le, "equal": torch.eq, "not_equal": torch.ne,
    "logical_and": torch.logical_and, "logical_or": torch.logical_or, "logical_not": torch.logical_not,
    "where": torch.where, "minimum": torch.minimum, "maximum": torch.maximum, "absolute": torch.abs,
    "sqrt": torch.sqrt, "exp": torch.exp, "log": torch.log, "tanh": torch.tanh, "erf": torch.erf,
    "sigmoid": torch.sigmoid, "relu": torch.relu, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}  # fmt: skip
"""torch's operation for each of `warptile.epilogue.operations`."""


def evaluated(program: Program, accumulator: torch.Tensor, operands: Mapping[str, Any]) -> list[torch.Tensor]:
    """The outputs of an epilogue by torch's operations, in the type of ``accumulator``.

    Args:
        program: the traced epilogue.
        accumulator: (..., M, N), alpha * A @ B + beta * C.
        operands: tensors and numbers by name.
    """
    shape = accumulator.shape
    values: list[torch.Tensor] = []
    for step in program.steps:
        arguments = [values[index] for index in step.arguments]
        if step.name == ACCUMULATOR:
            found = accumulator
        elif step.name == CONSTANT:
            found = accumulator.new_tensor(step.value)
        elif step.name == CAST:
            found = arguments[0].to(torch_type(str(step.value))).to(accumulator.dtype)
        elif step.name == UNIFORM:
            drawn = uniform(operands[str(step.value)], int(shape[-2]), int(shape[-1]))
            found = torch.as_tensor(drawn, dtype=accumulator.dtype, device=accumulator.device)
        elif isinstance(step.value, tuple):
            found = _operand(operands[step.value[0]], step.value[1:], accumulator)
        else:
            found = OPERATIONS[step.name](*arguments)
        values.append(found)
    return [values[index].broadcast_to(shape) for index in program.outputs]


def _operand(given: Any, block: tuple[int, ...], accumulator: torch.Tensor) -> torch.Tensor:
    if not isinstance(given, torch.Tensor):
        return accumulator.new_tensor(given)
    found = given.to(accumulator.dtype)
    for axis, size in zip((-2, -1), block, strict=True):
        if size > 1:
            found = found.repeat_interleave(size, axis).narrow(axis, 0, accumulator.shape[axis])
    return found


class FusedFunction(torch.autograd.Function):
    """Records a matmul with an epilogue for backward passes."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, c: Any, call: FusedGradientCall, *tensors: Any) -> Any:
        """The outputs; with gradients disabled."""
        refuse_gradients(a, "matmul(a.detach(), b.detach(), ...)")
        outputs, kept = call.run(a, b, c, tensors)
        ctx.save_for_backward(a, b, kept, *tensors)
        ctx.said = call, None if c is None else c.shape
        return outputs if len(outputs) > 1 else outputs[0]

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator,unused-ignore]
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Gradients of a, b, c and the epilogue's tensors."""
        a, b, kept, *tensors = ctx.saved_tensors
        call, c_shape = ctx.said
        compute = torch.float64 if kept.dtype == torch.float64 else torch.float32
        wanted = ctx.needs_input_grad
        with torch.enable_grad():
            accumulator = kept.detach().to(compute).requires_grad_()
            inputs = [
                each.detach().requires_grad_() if needs else each
                for each, needs in zip(tensors, wanted[4:], strict=True)
            ]
            named = call.numbers | dict(zip(call.names, inputs, strict=True))
            outputs = evaluated(call.program, _matrices(accumulator, call.vectors), named)
            asked = [accumulator, *(each for each in inputs if each.requires_grad)]
            found = torch.autograd.grad(
                [_as_result(each, gradient.shape) for each, gradient in zip(outputs, gradients, strict=True)],
                asked,
                [each.to(compute) for each in gradients],
                allow_unused=True,
            )
        of_sum = torch.zeros_like(kept) if found[0] is None else found[0].to(kept.dtype)
        others = iter(found[1:])
        of_tensors = [next(others) if needs else None for needs in wanted[4:]]
        shapes = a.shape, b.shape, c_shape
        of_operands = matmul_gradients(call.setting, a, b, shapes, a.dtype, of_sum, wanted[:3])
        return (*of_operands, None, *of_tensors)


def _matrices(accumulator: torch.Tensor, vectors: tuple[bool, bool]) -> torch.Tensor:
    """The sum with the axes that a result of 1-D operands lacks."""
    found = accumulator.unsqueeze(-1) if vectors[1] else accumulator
    return found.unsqueeze(-2) if vectors[0] else found


def _as_result(output: torch.Tensor, shape: Any) -> torch.Tensor:
    return output.reshape(shape)


class FusedGradientCall:
    """A call with an epilogue whose gradient is recorded.

    Args:
        epilogue: as given by the caller.
        operands: tensors and numbers by name.
        options: keywords of `warptile.matmul`.
        a, b, c: tensors.
    """

    def __init__(
        self, epilogue: Callable[..., Any], operands: Mapping[str, Any], options: dict[str, Any], a: Any, b: Any, c: Any
    ) -> None:
        if options["config"] is not None or a.element_size() == 1:
            raise UnsupportedError(
                "epilogue: a call whose gradient is recorded takes no configuration and no 8-bit operands; call it on "
                "detached tensors under torch.no_grad()"
            )
        self.program = trace(epilogue, operands)
        self.names = tuple(name for name, each in operands.items() if isinstance(each, torch.Tensor))
        self.numbers = {name: each for name, each in operands.items() if name not in self.names}
        self.vectors = a.dim() == 1, b.dim() == 1
        self.setting = Setting(
            number(options["alpha"], "alpha"), beta_of(options["beta"], c), options["precision"], options["max_sms"],
            options["backend"],
        )  # fmt: skip
        self._options = options
        kept = str(a.dtype).removeprefix("torch.")
        self._keeping = keeping(epilogue, kept)

    def run(self, a: Any, b: Any, c: Any, tensors: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        """The outputs, and the accumulators in the operands' type."""
        named = self.numbers | dict(zip(self.names, tensors, strict=True))
        left, right, addend = (None if each is None else each.detach() for each in (a, b, c))
        given = {name: each.detach() if isinstance(each, torch.Tensor) else each for name, each in named.items()}
        *outputs, kept = api.matmul(left, right, addend, **(self._options | given), epilogue=self._keeping)
        return tuple(outputs), kept


def keeping(epilogue: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    """The epilogue with the accumulator, rounded to a type, as its last output."""

    def kept(acc: Any, **operands: Any) -> Any:
        found = epilogue(acc, **operands)
        outputs = found if isinstance(found, (tuple, list)) else (found,)
        return (*outputs, expressions.cast(acc, dtype))

    kept.__signature__ = inspect.signature(epilogue)  # type: ignore[attr-defined]
    return kept


def fused_call(
    a: Any, b: Any, c: Any, options: dict[str, Any], epilogue: Callable[..., Any], operands: Mapping[str, Any]
) -> Any:
    """`warptile.matmul` with an epilogue, of tensors whose gradient is recorded."""
    call = FusedGradientCall(epilogue, operands, options, a, b, c)
    return FusedFunction.apply(a, b, c, call, *(operands[name] for name in call.names))
