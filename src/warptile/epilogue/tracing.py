"""From a Python function to a `Program`: the function is called once, with symbolic values that note what is done."""

from __future__ import annotations

import inspect
import linecache
import numbers
import reprlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from warptile.epilogue.epilogue_program import (
    ACCUMULATOR,
    CAST,
    CONSTANT,
    TENSOR,
    UNIFORM,
    Program,
    Reduction,
    Step,
    Value,
    is_block_scale,
)
from warptile.epilogue.operations import FLAG, NUMBER, OPERATIONS
from warptile.errors import EpilogueError, WarptileError

MOST_STEPS = 256
"""Steps of a program; each value may stay in a register."""

FUNCTIONS = (
    "absolute", "cast", "clamp", "dropout", "erf", "exp", "gelu", "log", "maximum", "minimum", "relu", "sigmoid",
    "silu", "sqrt", "tanh", "where",
)  # fmt: skip
"""Functions of `warptile` that take symbolic values, for messages."""

MOST_TEXT = 80
"""Characters of the user's line that a message shows."""

_UFUNCS = {name: name for name in OPERATIONS} | {
    "true_divide": "divide", "fabs": "absolute", "bitwise_and": "logical_and", "bitwise_or": "logical_or",
    "invert": "logical_not",
}  # fmt: skip
"""NumPy's functions of array elements that stand for an operation."""


@dataclass
class Trace:
    """The steps noted so far; equal ones are noted once. ``pairing`` is what `warptile.epilogue.column_pairs` notes.
    ``most_steps`` bounds their number, unneeded ones included."""

    steps: list[Step] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)
    pairing: Any = None
    most_steps: int | None = MOST_STEPS

    def value(self, name: str, arguments: tuple[int, ...] = (), value: Value = None, kind: str = NUMBER) -> Traced:
        """The value of a step."""
        step = Step(name, arguments, value)
        index = self.known.setdefault(repr(step), len(self.steps))
        if index == len(self.steps):
            if index == self.most_steps:
                raise EpilogueError(
                    f"epilogue: it has more than {MOST_STEPS} operations; apply a part of it afterwards"
                )
            self.steps.append(step)
        return Traced(self, index, kind)


class Traced:
    """A symbolic value of an epilogue: the accumulator, an operand, or what was computed from them."""

    __slots__ = ("index", "kind", "operand", "trace")
    __array_priority__ = 1000

    def __init__(self, trace: Trace, index: int, kind: str = NUMBER, operand: str | None = None) -> None:
        self.trace, self.index, self.kind, self.operand = trace, index, kind, operand

    # --- operators ---

    def __add__(self, other: Any) -> Traced:
        return apply("add", self, other)

    def __radd__(self, other: Any) -> Traced:
        return apply("add", other, self)

    def __sub__(self, other: Any) -> Traced:
        return apply("subtract", self, other)

    def __rsub__(self, other: Any) -> Traced:
        return apply("subtract", other, self)

    def __mul__(self, other: Any) -> Traced:
        return apply("multiply", self, other)

    def __rmul__(self, other: Any) -> Traced:
        return apply("multiply", other, self)

    def __truediv__(self, other: Any) -> Traced:
        return apply("divide", self, other)

    def __rtruediv__(self, other: Any) -> Traced:
        return apply("divide", other, self)

    def __neg__(self) -> Traced:
        return apply("negative", self)

    def __pos__(self) -> Traced:
        return self

    def __abs__(self) -> Traced:
        return apply("absolute", self)

    def __pow__(self, exponent: Any) -> Traced:
        if isinstance(exponent, (int, float)) and exponent == 0.5:
            return apply("sqrt", self)
        if not isinstance(exponent, (int, float)) or not 1 <= abs(exponent) <= 16 or exponent != int(exponent):
            refuse(f"** {exponent!r}: the exponent is 0.5 or a whole number up to 16; write exp(y * log(x))")
        if exponent < 0:
            return 1 / self**-exponent
        if exponent == 1:
            return self
        half = self ** (exponent // 2)
        return half * half * self if exponent % 2 else half * half

    def __lt__(self, other: Any) -> Traced:
        return apply("less", self, other)

    def __le__(self, other: Any) -> Traced:
        return apply("less_equal", self, other)

    def __gt__(self, other: Any) -> Traced:
        return apply("less", other, self)

    def __ge__(self, other: Any) -> Traced:
        return apply("less_equal", other, self)

    def __eq__(self, other: Any) -> Any:
        return apply("equal", self, other)

    def __ne__(self, other: Any) -> Any:
        return apply("not_equal", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Any) -> Traced:
        return apply("logical_and", self, other)

    def __or__(self, other: Any) -> Traced:
        return apply("logical_or", self, other)

    def __invert__(self) -> Traced:
        return apply("logical_not", self)

    # --- reductions ---

    def sum(self, axis: Any = None, keepdims: bool = False) -> Reduced:
        """The sum over an axis, or all, as an output."""
        return Reduced.of(self, "add", axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Reduced:
        """The largest element, NaN if there is one, as an output."""
        return Reduced.of(self, "maximum", axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Reduced:
        """The smallest element, NaN if there is one, as an output."""
        return Reduced.of(self, "minimum", axis, keepdims)

    # --- what a symbolic value is not ---

    def __mod__(self, other: Any) -> NoReturn:
        refuse("%, // and @ cannot be fused; there are + - * /, ** n, comparisons, & | ~ and abs")

    __rmod__ = __floordiv__ = __rfloordiv__ = __matmul__ = __rmatmul__ = __mod__

    def __rpow__(self, base: Any) -> NoReturn:
        refuse(f"{base!r} ** x cannot be fused; write warptile.exp(x * math.log({base!r}))")

    def __bool__(self) -> bool:
        refuse(
            "a symbolic value has no truth value: in place of if, and, or, min() and max() write "
            "warptile.where(condition, x, y), &, |, warptile.minimum(x, y) and warptile.maximum(x, y)"
        )

    def __float__(self) -> float:
        refuse("a symbolic value is no number: in place of math.exp(x), say, write warptile.exp(x)")

    __int__ = __index__ = __complex__ = __float__

    def __iter__(self) -> NoReturn:
        refuse("a symbolic value is one element; it cannot be iterated over or unpacked")

    def __getitem__(self, key: Any) -> NoReturn:
        refuse("a symbolic value is one element; it has no index: index the tensor before the call")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in FUNCTIONS:
            refuse(f"a symbolic value has no attribute {name!r}; write warptile.{name}(x)")
        refuse(
            f"a symbolic value has no attribute {name!r}; it has operators, .sum, .max and .min, and warptile's "
            f"functions take it: {', '.join(FUNCTIONS)}"
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        name = _UFUNCS.get(ufunc.__name__)
        if ufunc.__name__ in ("greater", "greater_equal"):
            name, inputs = {"greater": "less", "greater_equal": "less_equal"}[ufunc.__name__], inputs[::-1]
        if name is None or method != "__call__" or options:
            refuse(f"numpy.{ufunc.__name__} cannot be fused; there are {', '.join(OPERATIONS)}")
        return apply(name, *inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function.__name__ in _REDUCTIONS and not kwargs.keys() - {"axis", "keepdims"}:
            return getattr(args[0], _REDUCTIONS[function.__name__])(*args[1:], **kwargs)
        name = function.__name__ if len(args) == 3 and not kwargs else ""
        if name == "where":
            return apply("where", *args)
        if name == "clip":
            return apply("minimum", apply("maximum", args[0], args[1]), args[2])
        return refuse(f"numpy.{function.__name__} cannot be fused; there are {', '.join(OPERATIONS)}")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        refuse(
            f"torch's {getattr(function, '__name__', function)} does not take symbolic values; write warptile's "
            f"function of the same name, such as warptile.gelu(x)"
        )

    def __repr__(self) -> str:
        return f"<value {self.index} of an epilogue>"


@dataclass(frozen=True, eq=False)
class Reduced:
    """A reduction of a symbolic value: an output, and no operand of anything.

    Attributes:
        value: what is reduced.
        how: how.
    """

    value: Traced
    how: Reduction

    @staticmethod
    def of(value: Traced, operation: str, axis: Any, keeps_axes: bool) -> Reduced:
        """The reduction over an axis as NumPy numbers them from the end."""
        over = next((name for name, axes in _OVER.items() if axis in axes), None)
        if over is None:
            refuse(
                f"axis={axis!r}: it is -1 for one number for each row, -2 for one for each column, (-2, -1) for one "
                f"for each matrix of a batch, None for one of all"
            )
        if value.kind != NUMBER:
            refuse("a truth value has no sum; write warptile.where(condition, 1, 0).sum(axis=-1)")
        return Reduced(value, Reduction(operation, over, bool(keeps_axes)))


_OVER: dict[str, tuple[Any, ...]] = {
    "columns": (-1, (-1,)), "rows": (-2, (-2,)), "matrix": ((-2, -1), (-1, -2)), "all": (None,),
}  # fmt: skip
_REDUCTIONS = {"sum": "sum", "max": "max", "amax": "max", "min": "min", "amin": "min"}
"""NumPy's functions, and the methods that they are."""


def apply(name: str, *arguments: Any) -> Traced:
    """The value of an operation, of which at least one argument is symbolic."""
    operation = OPERATIONS[name]
    trace = next(each.trace for each in arguments if isinstance(each, Traced))
    values = [_symbolic(trace, each) for each in arguments]
    for value, kind in zip(values, operation.takes, strict=True):
        if value.kind != kind:
            found = {NUMBER: "a number", FLAG: "a truth value"}
            wanted = "x != 0" if kind == FLAG else "warptile.where(condition, 1, 0)"
            refuse(f"{name} takes {found[kind]} and got {found[value.kind]}; write {wanted}")
    return trace.value(name, tuple(each.index for each in values), kind=operation.gives)


def _symbolic(trace: Trace, value: Any) -> Traced:
    if isinstance(value, Traced):
        if value.trace is not trace:
            refuse("a symbolic value of another epilogue was used; each belongs to the call that it was made in")
        return value
    if isinstance(value, Reduced):
        refuse(
            "a reduction is an output, which is complete when the kernel is: return it, as in (y, y.sum(axis=-1)), and "
            "compute with it afterwards"
        )
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (numbers.Real, np.number)):
        refuse(
            f"got {_short(value)}; constants are real numbers, and arrays are given by name: "
            f"matmul(a, b, epilogue=lambda acc, bias: acc + bias, bias=bias)"
        )
    return trace.value(CONSTANT, value=float(value))


def _short(value: Any) -> str:
    """What a value is, in few words: of an array its shape."""
    if hasattr(value, "shape"):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def cast(x: Traced, dtype: str) -> Traced:
    """``x`` rounded to an element type."""
    if x.kind != NUMBER:
        refuse("cast takes a number and got a truth value; write warptile.where(condition, 1, 0)")
    return x.trace.value(CAST, (x.index,), dtype)


def per_block(x: Traced, rows: int, columns: int) -> Traced:
    """An operand of the epilogue with one element for each block of D."""
    if not isinstance(x, Traced) or x.operand is None:
        refuse("per_block takes an operand of the epilogue itself, such as per_block(scale, 128, 128)")
    return x.trace.value(TENSOR, value=(x.operand, rows, columns))


def scaled_by_blocks(x: Traced, scales: Traced, side: str, rows: int, columns: int) -> Traced:
    """The accumulator with scales of blocks of ``rows`` x ``columns`` elements of A or of B.

    Args:
        x: the accumulator, or that with scales of the other operand.
        scales: an operand of the epilogue.
        side: `BLOCKS_OF_A` or `BLOCKS_OF_B`.
        rows, columns: of a block.
    """
    return x.trace.value(side, (x.index,), (scales.operand or "", rows, columns))


def uniform(seed: Traced) -> Traced:
    """A random number in [0, 1) for each element of D."""
    if not isinstance(seed, Traced) or seed.operand is None:
        refuse(
            "the seed is an operand of the epilogue, so that another seed needs no other kernel: "
            "matmul(a, b, epilogue=lambda acc, seed: warptile.dropout(acc, 0.1, seed), seed=1234)"
        )
    return seed.trace.value(UNIFORM, value=seed.operand)


class RefusedError(EpilogueError):
    """What an epilogue does and no kernel can; in a trace it becomes an `EpilogueError` with the line that does it."""


def refuse(reason: str) -> NoReturn:
    """Refuse what an epilogue does, with the line where it does it."""
    raise RefusedError(reason)


def trace(function: Callable[..., Any], given: Mapping[str, Any]) -> Program:
    """The program of an epilogue.

    Args:
        function: its first parameter is the accumulator, alpha * A @ B + beta * C; the others are named operands. It
            returns the value of an element of D, or a tuple of that and of the values of further outputs.
        given: the named operands of the call; only the names are looked at.

    Returns:
        The program.

    Raises:
        EpilogueError: no function, other parameters than operands, or something in it that cannot be fused; the message
            has the line.
    """
    names = _parameters(function, given)
    noted = Trace()
    operands = {}
    for name in names:
        value = noted.value(TENSOR, value=(name, 1, 1))
        operands[name] = Traced(noted, value.index, NUMBER, name)
    try:
        returned = function(noted.value(ACCUMULATOR), **operands)
        outputs = returned if isinstance(returned, (tuple, list)) else (returned,)
        if not outputs:
            refuse("it returns no value")
        if isinstance(outputs[0], Reduced):
            refuse("its first output is the result, and no reduction: return that too, as in (y, y.max(axis=-1))")
        program = noted_program(noted, outputs)
        if noted.pairing is not None:
            program = noted.pairing.finished(program)
        _check_block_scales(program)
    except RefusedError as error:
        raise EpilogueError(f"epilogue{_line(error, function)}: {error}") from None
    except WarptileError:
        raise
    except Exception as error:
        raise EpilogueError(f"epilogue{_line(error, function)}: {type(error).__name__}: {error}") from error
    used = {step.value[0] if isinstance(step.value, tuple) else step.value for step in program.steps}
    used |= set(program.paired.operands if program.paired is not None else ())
    unused = [name for name in names if name not in used]
    if unused:
        raise EpilogueError(f"epilogue: it does not use its operand {unused[0]!r}; leave it out")
    both = [name for name in program.seeds if any(name == tensor for tensor, *_ in program.tensors)]
    if both:
        raise EpilogueError(f"epilogue: {both[0]!r} is a seed, and used as a number too; give it twice, by two names")
    return program


def noted_program(noted: Trace, outputs: Sequence[Any]) -> Program:
    """The program of what was noted, without steps that no output needs.

    Args:
        noted: the steps.
        outputs: values and reductions of values; numbers are values too.
    """
    values = [each.value if isinstance(each, Reduced) else each for each in outputs]
    program = _pruned(noted.steps, [_result(noted, each).index for each in values])
    reductions = tuple(each.how if isinstance(each, Reduced) else None for each in outputs)
    if not any(reductions):
        return program
    types = tuple(None if how else each for each, how in zip(program.types, reductions, strict=True))
    return replace(program, types=types, reductions=reductions)


def _check_block_scales(program: Program) -> None:
    """Refuse what reads the accumulator without the scales of blocks, which are in it from the beginning."""
    if not program.block_scales:
        return
    plain = [index for index, step in enumerate(program.steps) if step.name == ACCUMULATOR or is_block_scale(step)]
    for index in plain:
        readers = [each for each in program.steps if index in each.arguments]
        last = index == plain[-1]
        if not last and (index in program.outputs or not all(map(is_block_scale, readers))):
            refuse(
                "scales of blocks are applied while products are summed, and there is no accumulator without them, as "
                "derivatives need: call it on detached arrays"
            )


def _result(noted: Trace, value: Any) -> Traced:
    if value is None:
        refuse("it returns None; return the value of an element of D")
    found = _symbolic(noted, value)
    if found.kind != NUMBER:
        refuse("it returns a truth value; write warptile.where(condition, 1, 0)")
    return found


def operand_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the operands that an epilogue may take.

    Raises:
        EpilogueError: no function of the accumulator and of named operands.
    """
    return tuple(each.name for each in _operands(function))


def _ours(function: Any) -> str:
    """warptile's function of the name of a function or module of a framework, such as torch.relu; empty if none."""
    name = getattr(function, "__name__", type(function).__name__).lower()
    return f"epilogue=warptile.{name}" if name in OPERATIONS else ""


def _operands(function: Callable[..., Any]) -> list[inspect.Parameter]:
    example = "epilogue=lambda acc, bias: acc + bias, bias=bias"
    if not callable(function):
        raise EpilogueError(
            f"epilogue: got {type(function).__name__}; it takes a function of the accumulator, such as {example}"
        )
    if isinstance(function, np.ufunc):  # its other parameters, such as out, are NumPy's
        return []
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        shown = getattr(function, "__name__", repr(function))
        raise EpilogueError(
            f"epilogue: {shown} is no function of Python's, and its parameters cannot be found; write "
            f"{_ours(function) or example}"
        ) from None
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if not parameters or parameters[0].kind not in (kinds[0], inspect.Parameter.POSITIONAL_ONLY):
        raise EpilogueError(f"epilogue: its first parameter is the accumulator, such as {_ours(function) or example}")
    for each in parameters[1:]:
        if each.kind not in kinds:
            raise EpilogueError(f"epilogue: its operands have names; {each} has none: write {example}")
    return parameters[1:]


def _parameters(function: Callable[..., Any], given: Mapping[str, Any]) -> list[str]:
    """Names of an epilogue's operands in a call: those that the call gives, and no default stands for."""
    names = [each.name for each in _operands(function) if each.name in given or each.default is each.empty]
    missing = [name for name in names if name not in given]
    if missing:
        raise EpilogueError(f"epilogue: it takes {missing[0]!r}, which was not given: give {missing[0]}=...")
    return names


def _pruned(steps: list[Step], outputs: list[int]) -> Program:
    """The steps that outputs depend on, numbered anew."""
    needed: set[int] = set()
    pending = list(outputs)
    while pending:
        index = pending.pop()
        if index not in needed:
            needed.add(index)
            pending += steps[index].arguments
    number = {index: position for position, index in enumerate(sorted(needed))}
    kept = tuple(
        Step(steps[i].name, tuple(number[each] for each in steps[i].arguments), steps[i].value) for i in sorted(needed)
    )
    types = tuple(str(steps[index].value) if steps[index].name == CAST else None for index in outputs)
    return Program(kept, tuple(number[index] for index in outputs), types)


def _line(error: BaseException, function: Callable[..., Any]) -> str:
    """Where in the user's code an error arose, as `` (file.py, line 7: acc + x)``."""
    own = __file__.rpartition("/")[0]
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(own)]
    code = getattr(function, "__code__", None)
    if frames:
        name, number = frames[-1].filename, frames[-1].lineno or 0
    elif code is not None and not code.co_filename.startswith(own):
        name, number = code.co_filename, code.co_firstlineno
    else:
        return ""
    text = linecache.getline(name, number).strip()
    text = text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 3] + "..."
    return f" ({name}, line {number}{f': {text}' if text else ''})"
