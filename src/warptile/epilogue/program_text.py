"""Epilogues as text, for graphs and programs of frameworks: they keep a call's epilogue as an attribute of an operator,
and may be written to a file and run by another process.

A text that is read is traced again, so that it passes every check that a Python function passes.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from warptile.epilogue import tracing
from warptile.epilogue.column_pairs import HALVES, PAIRS, two_columns
from warptile.epilogue.epilogue_program import (
    ACCUMULATOR,
    CAST,
    CONSTANT,
    TENSOR,
    UNIFORM,
    Program,
    Reduction,
    Step,
    is_block_scale,
)
from warptile.epilogue.operations import OPERATIONS
from warptile.epilogue.tracing import Reduced, Traced, refuse
from warptile.errors import EpilogueError

MOST_KNOWN = 1024
"""Programs whose functions and texts are remembered."""


def text_of(program: Program) -> str:
    """The program as JSON; equal programs have equal texts."""
    steps = [[each.name, each.arguments, each.value] for each in program.steps]
    reductions = [how and [how.operation, how.over, how.keeps_axes] for how in program.reductions]
    return json.dumps({"steps": steps, "outputs": program.outputs, "reductions": reductions})


@lru_cache(maxsize=MOST_KNOWN)
def program_of(text: str) -> Program:
    """The inverse of `text_of`.

    Raises:
        EpilogueError: no text of a program.
    """
    try:
        said = json.loads(text)
        steps = tuple(Step(name, tuple(arguments), _value(value)) for name, arguments, value in said["steps"])
        reductions = tuple(how and Reduction(*how) for how in said["reductions"])
        return checked(steps, tuple(said["outputs"]), reductions)
    except (ValueError, TypeError, LookupError) as error:
        if isinstance(error, EpilogueError):
            raise
        raise EpilogueError(
            f"epilogue: {text[:80]!r} is not the text of an epilogue ({type(error).__name__}: {error}); it is made by "
            f"warptile.matmul where a program that contains the call is traced"
        ) from None


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def checked(
    steps: tuple[Step, ...], outputs: tuple[int, ...], reductions: tuple[Reduction | None, ...] = ()
) -> Program:
    """The program of steps that were noted before, with unneeded ones left out and equal ones merged.

    Args:
        steps: those of a program. Further ones, of the names ``"halves"`` and ``"pairs"``, are the first (value 0) or
            the second (value 1) column of a pair.
        outputs, reductions: as of a `Program`.

    Raises:
        EpilogueError: steps that no epilogue has.
    """
    noted = Program(steps, outputs, (), reductions)
    return tracing.trace(replayed(noted), dict.fromkeys(noted.operands))


@lru_cache(maxsize=MOST_KNOWN)
def replayed(program: Program) -> Callable[..., Any]:
    """A function whose trace is ``program`` again, for callers that take an epilogue as a function."""

    def replay(acc: Any, **operands: Any) -> Any:
        values: list[Any] = []
        for step in program.steps:
            values.append(_repeated(step, [values[index] for index in step.arguments], acc, operands))
        found = [values[index] for index in program.outputs]
        for index, how in enumerate(program.reductions):
            if how is not None:
                found[index] = Reduced(found[index], how)
        return tuple(found) if len(found) > 1 else found[0]

    kind = inspect.Parameter
    parameters = [kind("acc", kind.POSITIONAL_ONLY), *(kind(each, kind.KEYWORD_ONLY) for each in program.operands)]
    replay.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    replay.warptile_program = program  # type: ignore[attr-defined]
    return replay


def _repeated(step: Step, arguments: list[Traced], acc: Traced, operands: dict[str, Traced]) -> Traced:
    if step.name == ACCUMULATOR:
        return acc
    if step.name == CONSTANT:
        return acc.trace.value(CONSTANT, value=float(step.value))  # type: ignore[arg-type]
    if step.name == TENSOR:
        assert isinstance(step.value, tuple)
        operand, rows, columns = step.value
        return tracing.per_block(operands[operand], rows, columns)
    if is_block_scale(step):
        assert isinstance(step.value, tuple)
        operand, rows, columns = step.value
        return tracing.scaled_by_blocks(arguments[0], operands[operand], step.name, rows, columns)
    if step.name == UNIFORM:
        return tracing.uniform(operands[str(step.value)])
    if step.name == CAST:
        return tracing.cast(arguments[0], str(step.value))
    if step.name in (HALVES, PAIRS):
        found: Traced = two_columns(arguments[0], step.name)[bool(step.value)]
        return found
    if step.name not in OPERATIONS:
        refuse(f"there is no operation {step.name!r}; there are {', '.join(OPERATIONS)}")
    return tracing.apply(step.name, *arguments)


@lru_cache(maxsize=MOST_KNOWN)
def keeping_accumulator(program: Program, dtype: str) -> Program:
    """The program with the accumulator, rounded to an element type, as a further and last output."""
    count = len(program.steps)
    steps = (*program.steps, Step(ACCUMULATOR), Step(CAST, (count,), dtype))
    reductions = (*program.reductions, None) if program.reductions else ()
    return checked(steps, (*program.outputs, count + 1), reductions)


@lru_cache(maxsize=MOST_KNOWN)
def unreduced(program: Program, dtype: str) -> Program:
    """The program with what it reduces, in an element type, in the place of reductions."""
    if not any(program.reductions):
        return program
    steps, outputs = list(program.steps), list(program.outputs)
    for index, how in enumerate(program.reductions):
        if how is not None:
            steps.append(Step(CAST, (outputs[index],), dtype))
            outputs[index] = len(steps) - 1
    return checked(tuple(steps), tuple(outputs))
