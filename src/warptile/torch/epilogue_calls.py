"""Calls with an epilogue that torch has to see: recorded directly, dispatched as an operator, or traced by Dynamo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from warptile import api
from warptile.arrays.options import beta_of, number
from warptile.calls.gated_call import GatedEpilogue, gated_product
from warptile.calls.matmul_plan import GemmPlan
from warptile.calls.scaled_call import scaled_call, scaling_epilogue
from warptile.epilogue import column_pairs
from warptile.epilogue.epilogue_program import ACCUMULATOR, CONSTANT, TENSOR, ColumnPairs, Program, Reduction, Step
from warptile.epilogue.identity import traced
from warptile.epilogue.operations import NUMBER
from warptile.epilogue.program_text import checked, replayed, text_of
from warptile.epilogue.tracing import Reduced, Traced
from warptile.linear_call import BIAS, by_rows, check_linear, of_linear
from warptile.torch.bound_epilogues import learn
from warptile.torch.calls import (
    factors,
    options_of_plan,
    refuse_config,
    tensor_of,
    traced_matmul_call,
)
from warptile.torch.fused_gradients import EpilogueCall, record_fused, with_accumulators
from warptile.torch.fused_operator import FUSED_MATMUL, signed
from warptile.torch.gradients import Setting, is_direct
from warptile.torch_route import SAID, constant_to_dynamo, shown_to_dynamo


def fused_call(a: Any, b: Any, c: Any, options: dict[str, Any], epilogue: Any, operands: Mapping[str, Any]) -> Any:
    """`warptile.matmul` with an epilogue, of tensors for which `warptile.torch_route.torch_sees` said yes.

    Args:
        a, b, c: tensors.
        options: the other keywords of `warptile.matmul`, without ``out``.
        epilogue, operands: as given.
    """
    refuse_config(options["config"])
    program = traced(epilogue, operands)
    tensors = {name: each for name, each in operands.items() if isinstance(each, torch.Tensor)}
    numbers = {name: each for name, each in operands.items() if name not in tensors}
    if not is_direct(a, b, c, *tensors.values()):
        return _operated(a, b, c, program, tensors, numbers, options)

    def compute(made: Program) -> Any:
        found = api.matmul(a, b, c, **options, **operands, epilogue=replayed(made))
        return found if isinstance(found, tuple) else (found,)

    setting = Setting(
        number(options["alpha"], "alpha"), beta_of(options["beta"], c), options["precision"], options["max_sms"],
        options["backend"], options["batch_invariant"],
    )  # fmt: skip
    call = EpilogueCall(program, tuple(tensors), numbers, setting, compute)
    *outputs, _kept = record_fused(a, b, c, call, *tensors.values())
    learn(a, b, c, options, epilogue, operands, call, with_accumulators(program, a))
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _operated(
    a: Any, b: Any, c: Any, program: Program, tensors: dict[str, Any], numbers: dict[str, Any], options: dict[str, Any]
) -> Any:
    """The call as one of ``torch.ops.warptile.fused_matmul``."""
    given = {name: float(number(each, name)) for name, each in numbers.items() if name not in program.seeds}
    seeds = {name: signed(name, each) for name, each in numbers.items() if name in program.seeds}
    options = {name: each for name, each in options.items() if name != "config"}
    outputs = FUSED_MATMUL(
        a, b, c, list(tensors.values()), program=text_of(program), names=[*tensors, *given, *seeds],
        numbers=list(given.values()), seeds=list(seeds.values()), **factors(a, c, **options),
    )  # fmt: skip
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


# --- what Dynamo traces ----------------------------------------------------------------------------------------------


class Notes:
    """What stands for `warptile.epilogue.tracing.Trace` while Dynamo traces: it runs each line of the epilogue, and so
    knows, and guards, every number that the function reads from around it."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, tuple[int, ...], Any]] = []

    def value(self, name: str, arguments: tuple[int, ...] = (), value: Any = None, kind: str = "number") -> Traced:
        """As of `warptile.epilogue.tracing.Trace`."""
        if name == CONSTANT:
            (value,) = {value: None}  # a key has to be known: a number that Dynamo holds as a symbol becomes one
        self.steps.append((name, arguments, value))
        return Traced(self, len(self.steps) - 1, kind)  # type: ignore[arg-type]


def _noted_columns(x: Any, kind: str) -> tuple[Traced, Traced]:
    """What Dynamo traces instead of `warptile.epilogue.column_pairs.two_columns`."""
    return x.trace.value(kind, (x.index,), 0), x.trace.value(kind, (x.index,), 1)


shown_to_dynamo(column_pairs.two_columns, _noted_columns)


class Noted(NamedTuple):
    """An epilogue that Dynamo has traced.

    Attributes:
        text: its program.
        outputs: how many it has.
        seeds: operands that are seeds.
        paired: kind and operands of a `ColumnPairs`, empty where there is none.
        names: of all operands of the program.
    """

    text: str
    outputs: int
    seeds: tuple[str, ...]
    paired: tuple[str, tuple[str, ...]] | tuple[()]
    names: tuple[str, ...]


@constant_to_dynamo
def _traced_text(steps: Any, outputs: Any, reductions: Any) -> tuple[Any, ...]:
    """The program of steps, as the fields of a `Noted`."""
    hows = tuple(Reduction(*how) if how else None for how in reductions)
    program = checked(tuple(Step(*each) for each in steps), outputs, hows if any(hows) else ())
    paired = () if program.paired is None else (program.paired.kind, program.paired.operands)
    return text_of(program), len(program.outputs), program.seeds, paired, program.operands


def _noted(epilogue: Callable[..., Any], operands: Mapping[str, Any]) -> Noted:
    """An epilogue that Dynamo traces."""
    notes = Notes()
    values = {}
    for name in operands:
        values[name] = Traced(notes, notes.value(TENSOR, value=(name, 1, 1)).index, NUMBER, name)  # type: ignore[arg-type]
    returned = epilogue(notes.value(ACCUMULATOR), **values)
    indices, hows = [], []
    for each in returned if isinstance(returned, (tuple, list)) else (returned,):
        how = None
        if isinstance(each, Reduced):
            how, each = each.how, each.value
        hows.append(_fields(how))
        indices.append(each.index if isinstance(each, Traced) else notes.value(CONSTANT, value=float(each)).index)
    return Noted(*_traced_text(tuple(notes.steps), tuple(indices), tuple(hows)))


def _fields(how: Reduction | None) -> tuple[Any, ...]:
    return () if how is None else (how.operation, how.over, how.keeps_axes)


def traced_fused_call(
    a: Any, b: Any, c: Any, out: Any, options: dict[str, Any], epilogue: Callable[..., Any], operands: dict[str, Any]
) -> Any:
    """`warptile.matmul` with an epilogue as Dynamo traces it."""
    noted = _noted(epilogue, operands)
    if not noted.paired:
        return _traced_operator(a, b, c, out, options, noted, operands)

    def multiply(
        left: Any, right: Any, addend: Any = None, *, epilogue: Any = None, out: Any = None, **given: Any
    ) -> Any:
        if epilogue is None:
            return traced_matmul_call(left, right, addend, out=out, **given)
        said = {name: each for name, each in given.items() if name in SAID}
        named = {name: each for name, each in given.items() if name not in SAID}
        if isinstance(epilogue, Noted):
            return _traced_operator(left, right, addend, out, said, epilogue, named)
        return traced_fused_call(left, right, addend, out, said, epilogue, named)

    gated = GatedEpilogue(ColumnPairs(*noted.paired), noted, noted.names)  # type: ignore[arg-type]
    said = dict.fromkeys(SAID) | {"alpha": 1, "batch_invariant": False} | options
    return gated_product(multiply, (a, b, c, out), said, gated, operands)


def _traced_operator(
    a: Any, b: Any, c: Any, out: Any, options: dict[str, Any], noted: Noted, operands: dict[str, Any]
) -> Any:
    options = dict(options)
    refuse_config(options.pop("config", None))
    tensors, numbers, seeds = {}, {}, {}
    for name, each in operands.items():
        if isinstance(each, (torch.Tensor, np.ndarray)):
            tensors[name] = tensor_of(each)
        elif name in noted.seeds:
            seeds[name] = signed(name, each)
        else:
            numbers[name] = each if isinstance(each, float) else float(each)
    left, right, addend = tensor_of(a), tensor_of(b), tensor_of(c)
    outputs = FUSED_MATMUL(
        left, right, addend, list(tensors.values()), program=noted.text, names=[*tensors, *numbers, *seeds],
        numbers=list(numbers.values()), seeds=list(seeds.values()), **factors(left, addend, **options),
    )  # fmt: skip
    if out is not None:
        targets = out if isinstance(out, (tuple, list)) else (out,)
        for target, each in zip(targets, outputs, strict=True):
            tensor_of(target).copy_(each)
        return out
    if isinstance(a, np.ndarray):
        outputs = [each.numpy() for each in outputs]
    return outputs[0] if noted.outputs == 1 else tuple(outputs)


def traced_scaled_call(a: Any, b: Any, c: Any, out: Any, options: dict[str, Any], epilogue: Any) -> Any:
    """`warptile.matmul` with scales in arrays as Dynamo traces it; None where they are numbers."""
    said = {name: each for name, each in options.items() if name in SAID}
    operands = {name: each for name, each in options.items() if name not in (*SAID, "scale_d", "amax")}
    scales = tensor_of(said.get("scale_a")), tensor_of(said.get("scale_b"))
    result = tensor_of(options.get("scale_d")), options.get("amax", False)
    left, right, addend = tensor_of(a), tensor_of(b), tensor_of(c)
    scaled = scaled_call(left, right, addend, said.pop("beta", None), scales, operands, result, in_graph=True)
    if scaled is None:
        return None
    said["scale_a"], said["scale_b"] = scaled.scale_a, scaled.scale_b
    function = scaling_epilogue(scaled.kinds, epilogue)
    return traced_fused_call(a, b, None, out, said, function, scaled.operands)


def traced_fused_linear(
    x: Any, w: Any, bias: Any, options: dict[str, Any], epilogue: Callable[..., Any], operands: dict[str, Any]
) -> Any:
    """`warptile.linear` with an epilogue as Dynamo traces it."""
    check_linear(x, w, bias)
    function = of_linear(epilogue, bias is not None, len(x.shape) > 2)
    if bias is not None:
        operands = {**operands, BIAS: bias}

    def multiply(rows: Any, transposed: Any, given: dict[str, Any]) -> Any:
        return traced_fused_call(rows, transposed, None, None, options, function, given)

    return by_rows(x, w, operands, multiply)


def traced_plan_call(held: GemmPlan, a: Any, b: Any, c: Any, out: Any, operands: dict[str, Any]) -> Any:
    """A held plan's call as Dynamo traces it: its factors, types and rung, in a graph whose shapes may change."""
    options = options_of_plan(held)
    if held.program is None:
        return traced_matmul_call(a, b, c, out=out, **options, **operands)
    program = held.program
    steps = tuple((each.name, each.arguments, each.value) for each in program.steps)
    noted = Noted(*_traced_text(steps, program.outputs, tuple(map(_fields, program.output_reductions))))
    return _traced_operator(a, b, c, out, options, noted, operands)
