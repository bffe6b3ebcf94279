"""Epilogues whose derivatives torch records: the forward pass is one kernel, which also stores the accumulators.

The accumulators, rounded to the operands' type, are one more output of the autograd node. Its backward pass is the
derivative of the epilogue on them, and the GEMMs of any matmul.

The derivative is one kernel (`warptile.epilogue.derivative`), the epilogue of a product with K = 0. Where somebody
differentiates, maps or traces it, or where one kernel does not compute it, it is evaluated by torch's operations
(`warptile.torch.epilogue_values`). Both these and the GEMMs are differentiable, and reach A, B and C through the
accumulators, so that derivatives of any order follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

from warptile.api import matmul
from warptile.epilogue.derivative import KEPT, Derivative, WantedGradient, derivative, gradient_name
from warptile.epilogue.epilogue_program import Program
from warptile.epilogue.program_text import keeping_accumulator, replayed
from warptile.torch.epilogue_values import pulled_back, pushed_forward
from warptile.torch.gradients import Setting, is_direct, matmul_gradients, matmul_tangent, refuse_gradients


class EpilogueCall(NamedTuple):
    """What derivatives have to know of a matmul with an epilogue, beside its tensors.

    Attributes:
        program: the epilogue.
        names: of its operands that are tensors, in the order in which these are given.
        numbers: its other operands by name.
        setting: factors and options.
        compute: makes the outputs of another program on the same tensors; None where they are made already.
    """

    program: Program
    names: tuple[str, ...]
    numbers: Mapping[str, Any]
    setting: Setting
    compute: Callable[[Program], Any] | None


class FusedFunction(torch.autograd.Function):
    """Records a matmul with an epilogue. Its outputs are those of the epilogue, and the accumulators."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, c: Any, call: EpilogueCall, *tensors: Any) -> Any:
        """The outputs; with gradients disabled."""
        wanted = ctx.needs_input_grad
        if wanted[0] or wanted[1]:
            refuse_gradients(a, "matmul(a.detach(), b.detach(), ...)")
        assert call.compute is not None
        outputs = call.compute(with_accumulators(call.program, a))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(a if wanted[1] else None, b if wanted[0] else None, outputs[-1], *tensors)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(a, b, outputs[-1], *tensors)
        ctx.said = call, (a.shape, b.shape, None if c is None else c.shape), a.dtype
        ctx.made = tuple((each.shape, each.dtype) for each in outputs)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Gradients of a, b, c and the epilogue's tensors."""
        a, b, kept, *tensors = ctx.saved_tensors
        call, shapes, dtype = ctx.said
        wanted, vectors = ctx.needs_input_grad, (len(shapes[0]) == 1, len(shapes[1]) == 1)
        names = wanted_names(call, wanted)
        total, of_operands = through_epilogue(call, kept, tensors, gradients, names, dtype, vectors)
        of_product = (None, None, None)
        if total is not None:
            of_product = matmul_gradients(call.setting, a, b, shapes, dtype, total, wanted[:3])
        return (*of_product, None, *in_order(call, tensors, of_operands))

    @staticmethod
    def jvp(ctx: Any, along_a: Any, along_b: Any, along_c: Any, _: Any, *along: Any) -> Any:
        """The derivative along tangents of all inputs (forward mode); None for no tangent."""
        a, b, kept, *tensors = ctx.saved_tensors
        call, shapes, _dtype = ctx.said
        vectors = len(shapes[0]) == 1, len(shapes[1]) == 1
        accumulator, operands = _evaluated_on(call, kept, tensors, vectors)
        of_blocks = blocked(call.program)
        tangents = {
            name: (each if name in of_blocks else _with_axes(each, vectors)).to(accumulator.dtype)
            for name, each in zip(call.names, along, strict=True)
            if each is not None
        }
        of_kept = matmul_tangent(call.setting, a, b, along_a, along_b, along_c)
        tangent = None if of_kept is None else _with_axes(of_kept.broadcast_to(kept.shape), vectors)
        if tangent is not None:
            tangent = tangent.to(accumulator.dtype)
        found = pushed_forward(call.program, accumulator, operands, tangent, tangents)
        return tuple(
            _as_output(each, shape, dtype, kept)
            for each, (shape, dtype) in zip((*found, tangent), ctx.made, strict=True)
        )


def with_accumulators(program: Program, a: Any) -> Program:
    """The epilogue that also stores the accumulators of a product of ``a``, rounded to a type for gradients."""
    return keeping_accumulator(program, "float32" if a.element_size() == 1 else name_of(a.dtype))


def wanted_names(call: EpilogueCall, wanted: tuple[bool, ...]) -> list[str]:
    """Operands whose gradients are wanted, of what says so for a, b, c, the call and its tensors."""
    return [name for name, needs in zip(call.names, wanted[4:], strict=True) if needs]


def in_order(call: EpilogueCall, tensors: Sequence[Any], of_operands: Mapping[str, Any]) -> list[Any]:
    """Gradients of the epilogue's tensors, each of its tensor's shape; None for one that has none."""
    return [
        of_operands[name].reshape(each.shape) if name in of_operands else None
        for name, each in zip(call.names, tensors, strict=True)
    ]


def through_epilogue(
    call: EpilogueCall, kept: Any, tensors: Sequence[Any], gradients: Sequence[Any], names: list[str], dtype: Any,
    vectors: tuple[bool, bool],
) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """Gradients of the accumulators, of the shape of ``kept`` or None, and of the named operands.

    Args:
        call: the call.
        kept: the accumulators.
        tensors: operands of the epilogue.
        gradients: of its outputs and of ``kept``; None for one that has none.
        names: operands whose gradients are wanted.
        dtype: of A and B.
        vectors: whether each of these is 1-D.
    """
    *of_outputs, of_kept = gradients
    made = in_one_kernel(call, kept, tensors, of_outputs, names, dtype)
    if made is not None:
        found = made.computed()
    else:
        accumulator, operands = _evaluated_on(call, kept, tensors, vectors)
        given = [None if each is None else _with_axes(each, vectors) for each in of_outputs]
        found = pulled_back(call.program, accumulator, operands, given, names)
    of_accumulator, of_operands = found
    parts = [each.reshape(kept.shape) for each in (of_accumulator, of_kept) if each is not None]
    total = None if not parts else parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return total, of_operands


class OneKernel(NamedTuple):
    """The derivative of an epilogue as the epilogue of a product with K = 0.

    Attributes:
        derivative: its program, and what the outputs are.
        arrays: A, B, C and ``out`` of the product.
        options: its other keywords.
        operands: of its epilogue.
        named: tensors of the forward pass's epilogue.
        gradients: of the outputs of the forward pass.
    """

    derivative: Derivative
    arrays: tuple[Any, Any, None, None]
    options: dict[str, Any]
    operands: dict[str, Any]
    named: dict[str, Any]
    gradients: Sequence[Any]

    @property
    def unchanged(self) -> int | None:
        """The output whose gradient is that of the accumulators as it lies, where no kernel is needed."""
        output = self.derivative.unchanged
        return output if output is not None and self.gradients[output].is_contiguous() else None

    def computed(self) -> tuple[Any, dict[str, Any]]:
        """Gradients of the accumulators and of operands, these by name."""
        made, of_operands = self.derivative, {}
        if self.unchanged is not None:
            of_accumulator = self.gradients[self.unchanged]
        else:
            left, right, *_ = self.arrays
            outputs = matmul(left, right, epilogue=replayed(made.program), **self.options, **self.operands)
            of_accumulator, *others = outputs if isinstance(outputs, tuple) else (outputs,)
            of_operands = dict(zip(made.names, others, strict=True))
        for name in made.summed:
            of_operands[name] = of_accumulator.sum_to_size((1, 1, *self.named[name].shape)[-2:])
        for name, output in made.passed:
            of_operands[name] = self.gradients[output]
        return of_accumulator, {
            name: each.to(self.named[name].dtype).reshape(self.named[name].shape) for name, each in of_operands.items()
        }


def in_one_kernel(
    call: EpilogueCall, kept: Any, tensors: Sequence[Any], gradients: Sequence[Any], names: list[str], dtype: Any
) -> OneKernel | None:
    """What computes the gradients of the accumulator and of the named operands, as `pulled_back` does; None where they
    take more than a kernel."""
    if torch.is_grad_enabled() or kept.dim() != 2 or dtype.itemsize == 1:
        return None
    if not is_direct(kept, *tensors, *gradients) or not all(each.dtype.is_floating_point for each in tensors):
        return None
    if any(each is not None and each.element_size() == 1 for each in gradients):  # operands are no 8-bit floats
        return None
    named = dict(zip(call.names, tensors, strict=True))
    wanted = tuple(WantedGradient(name, summed_over(named[name], kept), name_of(named[name].dtype)) for name in names)
    given = tuple(each is not None for each in gradients)
    types = tuple(None if each is None else name_of(each.dtype) for each in gradients)
    made = derivative(call.program, name_of(dtype), given, wanted, types)
    if made is None:
        return None
    hows = call.program.output_reductions
    operands = {KEPT: kept, **call.numbers, **named} | {
        gradient_name(output): each if how is None else each.reshape(_KEPT_AXES[how.over](kept.shape))
        for output, (each, how) in enumerate(zip(gradients, hows, strict=True))
        if each is not None
    }
    read = made.program.operands
    rows, columns = kept.shape
    left, right = kept.new_empty((rows, 0), dtype=dtype), kept.new_empty((0, columns), dtype=dtype)
    return OneKernel(
        made, (left, right, None, None), {"max_sms": call.setting.max_sms, "backend": call.setting.backend},
        {name: each for name, each in operands.items() if name in read}, named, gradients,
    )  # fmt: skip


_KEPT_AXES: dict[str, Callable[[Any], tuple[int, int]]] = {
    "columns": lambda shape: (shape[0], 1), "rows": lambda shape: (1, shape[1]), "matrix": lambda _: (1, 1),
    "all": lambda _: (1, 1),
}  # fmt: skip
"""The shape in which the gradient of a reduction broadcasts to D, by what the reduction goes over."""


def summed_over(operand: Any, d: Any) -> str | None:
    """What the gradient of an operand that broadcasts to D, a matrix, is summed over; None where it is D's shape."""
    rows, columns = (1, 1, *operand.shape)[-2:]
    if (rows, columns) == tuple(d.shape):
        return None
    if rows == d.shape[0]:
        return "columns"
    return "rows" if columns == d.shape[1] else "matrix"


def name_of(dtype: Any) -> str:
    """torch's type as warptile names it."""
    return str(dtype).removeprefix("torch.")


def _evaluated_on(
    call: EpilogueCall, kept: Any, tensors: Any, vectors: tuple[bool, bool]
) -> tuple[Any, dict[str, Any]]:
    """The accumulators as matrices, of the type to compute in, and the operands by name."""
    accumulator = _with_axes(kept.to(torch.promote_types(kept.dtype, torch.float32)), vectors)
    of_blocks = blocked(call.program)
    named = {
        name: each if name in of_blocks else _with_axes(each, vectors)
        for name, each in zip(call.names, tensors, strict=True)
    }
    return accumulator, {**call.numbers, **named}


def blocked(program: Program) -> set[str]:
    """Operands that have an element for each block, and so always two matrix axes."""
    return {name for name, *block in program.tensors if block != [1, 1]}


def _with_axes(tensor: torch.Tensor, vectors: tuple[bool, bool]) -> torch.Tensor:
    """A tensor that broadcasts to the result, with the axes that a result of 1-D operands lacks."""
    if tensor.dim() == 0:
        return tensor[None, None] if any(vectors) else tensor
    if vectors[1]:
        tensor = tensor.unsqueeze(-1)
    return tensor.unsqueeze(-2) if vectors[0] else tensor


def _as_output(tangent: Any, shape: Any, dtype: Any, like: torch.Tensor) -> Any:
    """The tangent of an output of this shape and type; whole numbers have none."""
    if not dtype.is_floating_point:
        return None
    return like.new_zeros(shape, dtype=dtype) if tangent is None else tangent.reshape(shape).to(dtype)


# As `warptile.torch.gradients.record_matmul`.
record_fused: Any = super(torch.autograd.Function, FusedFunction).apply
