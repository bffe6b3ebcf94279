"""An epilogue as a program: a list of steps in the order of their evaluation, checked, hashable, free of user text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from warptile.dtypes import DTYPES
from warptile.epilogue.operations import OPERATIONS, philox, rounded

ACCUMULATOR, CONSTANT, TENSOR, CAST, UNIFORM = "accumulator", "constant", "tensor", "cast", "uniform"
"""Steps that are no operation on values: alpha * A @ B + beta * C, a number, an element of a named operand, rounding to
an element type, a random number."""

BLOCKS_OF_A, BLOCKS_OF_B = "blocks of a", "blocks of b"
"""The accumulator with a scale for each block of A, or of B, applied as it is summed along K."""

SCALE_K = 128
"""Elements along K of a block that has a scale."""

Value = float | int | str | tuple[str, int, int] | None


@dataclass(frozen=True)
class Step:
    """One value.

    Attributes:
        name: an operation, or one of the kinds above.
        arguments: indices of earlier steps.
        value: of a constant the number; of a tensor (name, rows, columns) of the block of D for which it has one
            element; of scales the same of the block of A, or of B; of a cast the element type's name; of a random
            number the name of its seed.
    """

    name: str
    arguments: tuple[int, ...] = ()
    value: Value = None


@dataclass(frozen=True)
class Reduction:
    """An output that is a sum, or the largest or smallest element, of rows, columns or all of a value.

    Attributes:
        operation: ``"add"``, ``"maximum"`` or ``"minimum"``, which is NaN where an element is NaN.
        over: what it goes over: ``"columns"``, for one number for each row; ``"rows"``, for one for each column;
            ``"matrix"``, for one for each matrix of a batch; ``"all"``.
        keeps_axes: the axes that it goes over stay, with one element.
    """

    operation: str
    over: str
    keeps_axes: bool = False

    def shape(self, batch: tuple[int, ...], m: int, n: int) -> tuple[int, ...]:
        """Shape of the output beside a D of (\\*batch, m, n)."""
        kept = (1,) * self.keeps_axes
        return {
            "columns": (*batch, m, *kept),
            "rows": (*batch, *kept, n),
            "matrix": (*batch, *kept, *kept),
            "all": kept * (len(batch) + 2),
        }[self.over]


@dataclass(frozen=True)
class ColumnPairs:
    """Two columns of the product that make one of D, as a gate and what it gates.

    The program's accumulator is the product with the first columns; that with the second ones is an operand.

    Attributes:
        kind: ``"halves"`` for columns j and j + N / 2, ``"pairs"`` for columns 2 j and 2 j + 1.
        operands: names of the caller's operands that have N columns; to the program each is two.
    """

    kind: str
    operands: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Program:
    """What an epilogue computes for each element of D.

    Attributes:
        steps: in the order of evaluation.
        outputs: the step that is each output; the first is D.
        types: element type of each output that the epilogue states, by name; None where it leaves it open.
        reductions: for each output its reduction, or None; empty where there are none.
        paired: which two columns of the product make one of D, and what is read for both, where it is so.
    """

    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    types: tuple[str | None, ...]
    reductions: tuple[Reduction | None, ...] = ()
    paired: ColumnPairs | None = None

    @cached_property
    def _identity(self) -> tuple[Any, ...]:
        # 0.0 == -0.0 and True == 1, but their programs differ.
        return repr(self.steps), self.outputs, self.types, self.reductions, self.paired

    @cached_property
    def _hash(self) -> int:
        return hash(self._identity)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Program) and self._identity == other._identity)

    @cached_property
    def tensors(self) -> tuple[tuple[str, int, int], ...]:
        """Named operands that are read, each once for each block size, in the order of their first use."""
        return tuple(dict.fromkeys(step.value for step in self.steps if isinstance(step.value, tuple)))

    @cached_property
    def block_scales(self) -> dict[str, tuple[str, int, int]]:
        """Scales of blocks of operands: by step, `BLOCKS_OF_A` or `BLOCKS_OF_B`, its value."""
        return {step.name: step.value for step in self.steps if is_block_scale(step) and isinstance(step.value, tuple)}

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """Names of the steps that compute something."""
        return tuple(step.name for step in self.steps if step.name not in (ACCUMULATOR, CONSTANT, TENSOR))

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Names of all operands."""
        return tuple(dict.fromkeys([name for name, _, _ in self.tensors] + list(self.seeds)))

    @cached_property
    def seeds(self) -> tuple[str, ...]:
        """Names of seeds."""
        return tuple(dict.fromkeys(str(step.value) for step in self.steps if step.name == UNIFORM))

    @cached_property
    def factor_of_accumulator(self) -> int | None:
        """The step that multiplies the accumulator, its first argument, by a value that does not depend on it, where
        nothing else reads the accumulator; or None."""
        known = [index for index, step in enumerate(self.steps) if step.name == ACCUMULATOR or is_block_scale(step)]
        if not known:
            return None
        readers = [index for index, step in enumerate(self.steps) if known[-1] in step.arguments]
        if len(readers) != 1 or set(known) & set(self.outputs):
            return None
        step = self.steps[readers[0]]
        if step.name != "multiply" or step.arguments[0] != known[-1] or step.arguments[1] == known[-1]:
            return None
        return readers[0]

    @cached_property
    def makes_float8(self) -> bool:
        """Whether values are rounded to 8-bit floats."""
        return any(step.name == CAST and DTYPES[str(step.value)].is_float8 for step in self.steps)

    @property
    def output_reductions(self) -> tuple[Reduction | None, ...]:
        """For each output its reduction, or None."""
        return self.reductions or (None,) * len(self.outputs)

    def evaluate(
        self, accumulator: np.ndarray[Any, Any], operands: Mapping[str, Any]
    ) -> tuple[np.ndarray[Any, Any], ...]:
        """The outputs in float64: the reference of tests.

        Args:
            accumulator: (M, N): alpha * A @ B + beta * C, with what blocks of A and B are scaled by.
            operands: tensors that broadcast to (M, N), those of blocks with one element a block; numbers; seeds.

        Returns:
            Each output, (M, N) or reduced, not yet rounded to its type where its last step is no cast.
        """
        rows, columns = accumulator.shape
        values: list[Any] = []
        for step in self.steps:
            arguments = [values[index] for index in step.arguments]
            with np.errstate(all="ignore"):
                values.append(self._evaluated(step, arguments, accumulator, operands, rows, columns))
        found = [np.broadcast_to(np.asarray(values[index], np.float64), (rows, columns)) for index in self.outputs]
        hows = self.output_reductions
        return tuple(each if how is None else _reduced(each, how) for each, how in zip(found, hows, strict=True))

    @staticmethod
    def _evaluated(
        step: Step, arguments: list[Any], accumulator: Any, operands: Mapping[str, Any], rows: int, columns: int
    ) -> Any:
        if step.name == ACCUMULATOR:
            return np.asarray(accumulator, np.float64)
        if step.name == CONSTANT:
            return step.value
        if step.name == CAST:
            return rounded(np.asarray(arguments[0]), DTYPES[str(step.value)]).astype(np.float64)
        if step.name == UNIFORM:
            return philox(int(operands[str(step.value)]), rows, columns)
        if is_block_scale(step):
            return arguments[0]
        if isinstance(step.value, tuple):
            name, block_rows, block_columns = step.value
            found = np.asarray(operands[name], np.float64)
            if block_rows > 1:
                found = np.repeat(found, block_rows, axis=-2)[..., :rows, :]
            if block_columns > 1:
                found = np.repeat(found, block_columns, axis=-1)[..., :columns]
            return found
        return OPERATIONS[step.name].reference(*arguments)


def is_block_scale(step: Step) -> bool:
    """Whether a step is the accumulator with scales of blocks of A or of B."""
    return step.name in (BLOCKS_OF_A, BLOCKS_OF_B)


def _reduced(values: np.ndarray[Any, Any], how: Reduction) -> np.ndarray[Any, Any]:
    axis = {"columns": -1, "rows": -2}.get(how.over)
    function: Any = {"add": np.sum, "maximum": np.max, "minimum": np.min}[how.operation]
    return np.asarray(function(values, axis=axis, keepdims=how.keeps_axes))
