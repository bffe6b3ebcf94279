"""Epilogues of two columns of the product: `halves` and `pairs`, which make one column of D of two, as SwiGLU does.

A value of the epilogue before `halves` or `pairs` has N columns, behind it N / 2. So that every kernel can evaluate
it, the function is traced as an epilogue of N / 2 columns: its accumulator is the product with the first column of
each pair, and the one with the second column is an operand (`warptile.calls.gated_call` computes it before).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from warptile.epilogue.epilogue_program import (
    ACCUMULATOR,
    TENSOR,
    UNIFORM,
    ColumnPairs,
    Program,
    Step,
    is_block_scale,
)
from warptile.epilogue.tracing import Trace, Traced, refuse
from warptile.errors import ShapeError

HALVES, PAIRS = "halves", "pairs"

SECOND_PRODUCT = "product_with_second_columns"
"""The operand that is the product with the second column of each pair."""

_FIRST_PRODUCT = "first columns"


def first_columns(name: str) -> str:
    """The operand that has the first columns of the caller's operand ``name``."""
    return f"{name}_of_first_columns"


def second_columns(name: str) -> str:
    """The operand that has the second columns of the caller's operand ``name``."""
    return f"{name}_of_second_columns"


def two_columns(x: Any, kind: str) -> tuple[Any, Any]:
    """The values of ``x`` in the first and in the second column of each pair; also of NumPy arrays."""
    if not isinstance(x, Traced):
        array = np.asarray(x)
        n = array.shape[-1] if array.ndim else 1
        if n % 2:
            raise ShapeError(f"{kind}: got shape {array.shape}; it takes an even number of columns, such as (4, 8)")
        return (array[..., : n // 2], array[..., n // 2 :]) if kind == HALVES else (array[..., 0::2], array[..., 1::2])
    pairing = x.trace.pairing = x.trace.pairing or Pairing(kind)
    if pairing.kind != kind:
        refuse("it uses both halves and pairs; columns are paired in one way")
    return pairing.copied(x, second=False), pairing.copied(x, second=True)


class Pairing:
    """What a trace has paired so far.

    Args:
        kind: `HALVES` or `PAIRS`.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._operands: dict[str, None] = {}
        self._made = {SECOND_PRODUCT}

    def copied(self, x: Traced, *, second: bool) -> Traced:
        """The steps of ``x`` for the first, or the second, column of a pair."""
        copies: dict[int, Traced] = {}
        steps = x.trace.steps
        for index in _needed(steps, x.index):
            copies[index] = self._copy(x.trace, steps[index], copies, second)
        return Traced(x.trace, copies[x.index].index, x.kind)

    def _copy(self, trace: Trace, step: Step, copies: dict[int, Traced], second: bool) -> Traced:
        if step.name == UNIFORM:
            refuse(f"dropout comes behind {self.kind}: its random numbers are those of elements of D")
        if is_block_scale(step):
            refuse(
                f"{self.kind} goes with scales of whole operands, rows and columns; with scales of blocks write two "
                f"calls, one with the columns of b that are gates"
            )
        if step.name == ACCUMULATOR:
            if step.value is not None:
                refuse(f"{self.kind} of a value that came out of {self.kind}; once is enough")
            if second:
                return trace.value(TENSOR, value=(SECOND_PRODUCT, 1, 1))
            return trace.value(ACCUMULATOR, value=_FIRST_PRODUCT)
        if isinstance(step.value, tuple):
            name, *block = step.value
            if block != [1, 1]:
                refuse(f"per_block comes behind {self.kind}: its blocks are those of D")
            if name in self._made:
                refuse(f"{self.kind} of a value that came out of {self.kind}; once is enough")
            self._operands[name] = None
            self._made |= {first_columns(name), second_columns(name)}
            found = second_columns(name) if second else first_columns(name)
            return trace.value(TENSOR, value=(found, 1, 1))
        return trace.value(step.name, tuple(copies[each].index for each in step.arguments), step.value)

    def finished(self, program: Program) -> Program:
        """The program of N / 2 columns: its accumulator is the product with the first columns."""
        for step in program.steps:
            if step.name == ACCUMULATOR and step.value is None:
                refuse(
                    f"the accumulator has N columns and the result N / 2: give {self.kind} all that has N columns, "
                    f"such as gate, up = warptile.{self.kind}(acc + bias)"
                )
            if isinstance(step.value, tuple) and step.value[0] in self._operands:
                refuse(
                    f"it uses {step.value[0]!r} before {self.kind}, where there are N columns, and behind, where there "
                    f"are N / 2; give it twice, by two names"
                )
        steps = tuple(Step(ACCUMULATOR) if step.name == ACCUMULATOR else step for step in program.steps)
        return replace(program, steps=steps, paired=ColumnPairs(self.kind, tuple(self._operands)))


def _needed(steps: list[Step], index: int) -> list[int]:
    """The steps that one depends on, and itself, in order."""
    found: set[int] = set()
    pending = [index]
    while pending:
        each = pending.pop()
        if each not in found:
            found.add(each)
            pending += steps[each].arguments
    return sorted(found)
