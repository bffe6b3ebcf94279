"""Calls of `warptile.matmul` whose operands have scales in arrays, which the kernel reads: nothing waits for them; and
those whose result has a scale, or comes with its largest absolute value.

Such a call is one with an epilogue. Scales of whole operands, of rows of A and of columns of B are factors in it; those
of blocks along K are operands that the mainloop reads as it promotes sums (`warptile.epilogue.tracing`).
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warptile.arrays.array_view import is_tracer
from warptile.arrays.epilogue_operands import ADDEND, ADDEND_FACTOR, SCALE_OF_A, SCALE_OF_B, SCALE_OF_D, check_names
from warptile.arrays.options import beta_of, flag, number
from warptile.calls.matmul_plan import GemmPlan, MatmulPlan
from warptile.calls.packed_call import Stored, stored_as
from warptile.calls.plan_fit import check_addend, check_operands
from warptile.epilogue.epilogue_program import BLOCKS_OF_A, BLOCKS_OF_B, SCALE_K
from warptile.epilogue.identity import identity
from warptile.epilogue.tracing import scaled_by_blocks, trace
from warptile.errors import DTypeError, LayoutError, ShapeError, UnsupportedError
from warptile.torch_route import has_no_memory

if TYPE_CHECKING:
    from warptile.runtime.call_cache import Fused

Result = tuple[Any, Any]
"""``scale_d`` and ``amax`` of a call."""

PLAIN: Result = (None, False)
"""Those of a call that gives neither."""

ABSENT, ELEMENT, FACTOR = -2, -1, 0
"""In place of the lines of a block: no scale; one for the whole operand; one for each of its rows or columns."""

NUMBER = "number"
"""In place of the shape of a scale: it is a number."""

SCALES = ("scale_a", "scale_b")

OWN = frozenset((SCALE_OF_A, SCALE_OF_B, SCALE_OF_D, ADDEND, ADDEND_FACTOR))
"""Operands of the epilogue that takes the place of scales, beside the caller's."""

WIDE = 128
"""Rows of A, or columns of B, of a square block."""

MOST_KNOWN = 256
"""Epilogues, and calls, that are remembered."""


class Kinds(NamedTuple):
    """What makes two such calls' epilogues differ, beside the caller's own.

    Attributes:
        a: rows of A that share a scale in blocks; or `ABSENT`, `ELEMENT` or `FACTOR`.
        b: the same of columns of B.
        adds: there is a C.
        weighted: it has a factor.
        d: the result has a scale.
        amax: the largest absolute value of the result, before that scale, comes with it.
    """

    a: int
    b: int
    adds: bool
    weighted: bool
    d: bool = False
    amax: bool = False


@dataclass(frozen=True)
class ScaledCall:
    """A call with an epilogue in place of scales in arrays and of C.

    Attributes:
        scale_a, scale_b: scales that are numbers, and remain.
        kinds: what the epilogue applies.
        operands: its operands by name.
    """

    scale_a: Any
    scale_b: Any
    kinds: Kinds
    operands: dict[str, Any]


def scaled_call(
    a: Any, b: Any, c: Any, beta: Any, scales: tuple[Any, Any], operands: Mapping[str, Any], result: Result = PLAIN, *,
    in_graph: bool = False,
) -> ScaledCall | None:  # fmt: skip
    """The call that takes the place of one with scales; None where these are numbers, which alpha takes.

    Args:
        a, b, c, beta: as of `warptile.matmul`.
        scales: ``scale_a`` and ``scale_b``, None for none.
        operands: of the caller's epilogue.
        result: ``scale_d`` and ``amax``.
        in_graph: Dynamo traces the call, and no tensor can be read.

    Raises:
        DTypeError: operands that are not of 8 bits.
        ShapeError: scales of a shape that they cannot have, or beta without C.
        ArgumentTypeError: an ``amax`` that is no truth value.
        LayoutError: tensors in another place than ``a``.
        UnsupportedError: scales of blocks of integers.
    """
    scale_d, amax = result
    gives = scale_d is not None or flag(amax, "amax")
    if amax and 1 in (len(getattr(a, "shape", ())), len(getattr(b, "shape", ()))):
        raise ShapeError("amax: it is of results of two axes or more; give a.reshape(1, -1), or b.reshape(-1, 1)")
    checked = (
        _checked(a, b, c, beta, scales, gives, in_graph=True) if in_graph else _found(a, b, c, beta, scales, gives)
    )
    if checked is None:
        return None
    kinds, shapes = checked
    if gives:
        kinds = kinds._replace(d=scale_d is not None, amax=bool(amax))
    found, rest = dict(operands), list(scales)
    for side, (name, kind) in enumerate(((SCALE_OF_A, kinds.a), (SCALE_OF_B, kinds.b))):
        if kind != ABSENT:
            scale, shape, rest[side] = scales[side], shapes[side], None
            if shape == NUMBER:
                found[name] = float(number(scale, SCALES[side]))
            else:
                found[name] = scale if shape is None else scale.reshape(shape)
    if kinds.adds:
        found[ADDEND] = c
    if kinds.weighted:
        found[ADDEND_FACTOR] = float(beta_of(beta, c))
    if kinds.d:
        found[SCALE_OF_D] = _of_result(scale_d, a, b, in_graph=in_graph)
    return ScaledCall(rest[0], rest[1], kinds, found)


Checked = tuple[Kinds, tuple[Any, Any]]

_known_calls: dict[Hashable, Checked] = {}


def _of_result(scale: Any, a: Any, b: Any, *, in_graph: bool) -> Any:
    """``scale_d`` as an operand of the epilogue."""
    if is_number(scale, in_graph=in_graph):
        return float(number(scale, "scale_d"))
    _check_place(scale, "scale_d", a)
    shape, of_a, of_b = (tuple(getattr(each, "shape", ())) for each in (scale, a, b))
    if math.prod(shape) == 1:
        return scale.reshape(()) if shape else scale
    rows, columns = of_a[-2] if len(of_a) > 1 else 1, of_b[-1] if len(of_b) > 1 else 1
    if shape[-2:] not in ((rows, 1), (1, columns), (columns,)) or (shape == (columns,) and len(of_b) == 1):
        raise ShapeError(
            f"scale_d: got shape {shape}; for a result of {rows} x {columns} it has one element, one for each row "
            f"{(rows, 1)} or one for each column {(columns,)}, such as scale_d=numpy.ones({(rows, 1)}, 'float32')"
        )
    return scale


def _found(a: Any, b: Any, c: Any, beta: Any, scales: tuple[Any, Any], gives: bool) -> Checked | None:
    """As `_checked`, once for calls that say the same."""
    said: list[Any] = []
    try:
        for scale in scales:
            said += (None,) if scale is None else (scale.__class__, scale.shape, getattr(scale, "device", None))
        key = a.__class__, a.shape, a.dtype, getattr(a, "device", None), b.shape, c is None, beta, gives, *said
        known = _known_calls.get(key)
    except (AttributeError, TypeError):  # a number, or what is no array or no key
        return _checked(a, b, c, beta, scales, gives)
    if known is None:
        known = _checked(a, b, c, beta, scales, gives)
        if known is not None and isinstance(beta, int | float | None):
            if len(_known_calls) >= MOST_KNOWN:
                _known_calls.clear()
            _known_calls[key] = known
    return known


def _checked(
    a: Any, b: Any, c: Any, beta: Any, scales: tuple[Any, Any], gives: bool, *, in_graph: bool = False
) -> Checked | None:
    """The kinds of scales, and the shape that each is brought into: None as it is, `NUMBER` for a number. ``gives``:
    the result has a scale, or its largest absolute value is asked for."""
    element, whole = _element(a), _is_whole(a)
    numbers = [is_number(scale, in_graph=in_graph) for scale in scales]
    taken = [scale is not None and (whole or not numbers[side]) for side, scale in enumerate(scales)]
    if not any(taken) and not gives:
        return None
    if any(taken) and not whole and not element.startswith("float8"):
        name = SCALES[taken.index(True)]
        raise DTypeError(
            f"{name}: it is for operands of 8 bits; a is {element}: have the kernel read it, such as "
            f"epilogue=lambda acc, s: acc * s, s={name}"
        )
    kinds: list[int] = [ABSENT, ABSENT]
    found: list[Any] = [None, None]
    shapes = tuple(getattr(a, "shape", ())), tuple(getattr(b, "shape", ()))
    for side, scale in enumerate(scales):
        if taken[side]:
            found[side], kinds[side] = (NUMBER, ELEMENT) if numbers[side] else _operand(scale, side, shapes, a)
            if kinds[side] > 0 and whole:
                raise UnsupportedError(
                    f"{SCALES[side]}: got shape {tuple(scale.shape)}, one scale for each block along K, which operands "
                    f"of 8-bit floats take; a is {element}: give one element, {_lines_text(side, shapes[side])}"
                )
    weight = beta_of(beta, c)
    adds = weight != 0
    return Kinds(kinds[0], kinds[1], adds, adds and weight != 1), (found[0], found[1])


def _element(a: Any) -> str:
    return str(getattr(a, "dtype", "")).rpartition(".")[2]


def _is_whole(a: Any) -> bool:
    """Whether the operands are integers, whose scales are operands of the epilogue even where they are numbers."""
    return _element(a) in ("int8", "uint8")


def is_number(scale: Any, *, in_graph: bool = False) -> bool:
    """Whether a scale is a number, or an array of one element that can be read without waiting for a GPU."""
    if in_graph:
        return not hasattr(scale, "shape")
    if isinstance(scale, np.ndarray):
        return scale.size == 1
    if not hasattr(scale, "shape") or isinstance(scale, np.generic):
        return not hasattr(scale, "__cuda_array_interface__")
    if is_tracer(scale) or math.prod(scale.shape) != 1:
        return False
    place = getattr(getattr(scale, "device", None), "type", None)
    if place is not None:
        return place == "cpu" and not has_no_memory(sys.modules["torch"], scale)
    return not hasattr(scale, "__cuda_array_interface__")


def is_array(scale: Any) -> bool:
    """Whether a scale that `read_on_host` has seen is in memory that a kernel reads."""
    return scale is not None and scale.__class__ not in (float, int) and hasattr(scale, "shape")


def read_on_host(scale: Any, name: str) -> Any:
    """A scale as a number, where it is an array of one element that can be read without waiting for a GPU; else itself.

    Args:
        scale: as given.
        name: the argument, for messages.
    """
    if scale is None or scale.__class__ in (float, int) or not hasattr(scale, "shape"):
        return scale
    return number(scale, name) if is_number(scale) else scale


def stated(
    memory: Stored, said: tuple[Any, ...], epilogue: Callable[..., Any] | None, operands: Mapping[str, Any],
    result: Result,
) -> Fused | None:  # fmt: skip
    """What such a call is found by when it is bound; None where it cannot be told from others.

    Its operands have the names and the order of those of a `ScaledCall`, without a look at what they mean.

    Args:
        memory: its arrays in memory.
        said: its other arguments, in the order of `warptile.torch_route.SAID`.
        epilogue: the caller's, or None.
        operands: of that.
        result: ``scale_d`` and ``amax``.
    """
    (a, b, c, out), key, beside = memory
    alpha, beta, scale_a, scale_b, *others = said
    scale_d, amax = result
    known = None if epilogue is None else identity(epilogue)
    if (known is None) != (epilogue is None) or not (beta is None or beta.__class__ in (float, int)):
        return None
    found = dict(operands)
    if is_array(scale_a) or (scale_a is not None and _is_whole(a)):
        found[SCALE_OF_A], scale_a = _written(scale_a), None
    if is_array(scale_b) or (scale_b is not None and _is_whole(a)):
        found[SCALE_OF_B], scale_b = _written(scale_b), None
    if c is not None and beta != 0:
        found[ADDEND] = c
        if beta is not None and beta != 1:
            found[ADDEND_FACTOR], beta = float(beta), None
    if scale_d is not None:
        found[SCALE_OF_D] = _written(read_on_host(scale_d, "scale_d"))
    found.update(beside)
    options = alpha, beta, scale_a, scale_b, *others, amax, *key
    return (a, b, None, out), options, ("scaled", known), found


def _written(scale: Any) -> Any:
    """A scale as it is among the operands of a `ScaledCall`."""
    return float(scale) if scale.__class__ is int else scale


def _operand(scale: Any, side: int, shapes: Sequence[tuple[int, ...]], a: Any) -> tuple[Any, int]:
    """The shape that a scale has as an operand of the epilogue, None for its own, and its kind."""
    _check_place(scale, SCALES[side], a)
    shape, matrix = tuple(scale.shape), shapes[side]
    if math.prod(shape) == 1:
        return (() if shape else None), ELEMENT
    lines, k = (1, *matrix)[-2:] if side == 0 else (*matrix, 1)[:2] if len(matrix) == 1 else matrix[-2:][::-1]
    alone = len(shapes[1 - side]) == 1  # the result lacks the other operand's axis
    if shape == (lines,):
        return (None if alone or side == 1 else (lines, 1)), FACTOR
    if len(shape) > 1:
        last = shape[-2:] if side == 0 else shape[:-3:-1]
        if last == (lines, 1):
            return ((*shape[:-2], lines) if alone else None), FACTOR
        blocks = -(-k // SCALE_K)
        for wide in (1, WIDE):
            if last == (-(-lines // wide), blocks):
                return None, wide
    raise ShapeError(_shape_text(side, shape, lines, k))


def _check_place(scale: Any, name: str, a: Any) -> None:
    place = getattr(getattr(scale, "device", None), "type", None)
    if place is not None and scale.device != getattr(a, "device", None) and hasattr(a, "device"):
        raise LayoutError(f"{name}: it is on {scale.device} and a is on {a.device}: give {name}.to(a.device)")


def _shape_text(side: int, shape: tuple[int, ...], lines: int, k: int) -> str:
    name, operand, line = (("scale_a", "a", "row"), ("scale_b", "b", "column"))[side]
    blocks = -(-k // SCALE_K)

    def stated(count: int, along: int) -> str:
        return f"({count}, {along})" if side == 0 else f"({along}, {count})"

    return (
        f"{name}: got shape {shape}; for {stated(lines, k)} of {operand} it has one element, or one for each {line} "
        f"{stated(lines, 1)}, for each {WIDE} along K of a {line} {stated(lines, blocks)}, or for each block of {WIDE} "
        f"x {WIDE} {stated(-(-lines // WIDE), blocks)}, such as {name}=numpy.ones({stated(lines, 1)}, 'float32')"
    )


def _lines_text(side: int, shape: tuple[int, ...]) -> str:
    return f"or one for each row {(*shape[:-1], 1)}" if side == 0 else f"or one for each column {(1, shape[-1])}"


# --- the epilogue ----------------------------------------------------------------------------------------------------


def applied(kinds: Kinds, acc: Any, given: dict[str, Any]) -> Any:
    """The accumulator with its scales and C. Takes what it uses out of ``given``; Dynamo traces this."""
    sides = ((kinds.a, SCALE_OF_A), (kinds.b, SCALE_OF_B))
    for (lines, name), step in zip(sides, (BLOCKS_OF_A, BLOCKS_OF_B), strict=True):
        if lines > 0:
            block = (lines, SCALE_K) if step == BLOCKS_OF_A else (SCALE_K, lines)
            acc = scaled_by_blocks(acc, given.pop(name), step, *block)
    if kinds.a == kinds.b == ELEMENT:
        return _with_addend(kinds, acc * (given.pop(SCALE_OF_A) * given.pop(SCALE_OF_B)), given)
    for lines, name in sides:
        if lines in (ELEMENT, FACTOR):
            acc = acc * given.pop(name)
    return _with_addend(kinds, acc, given)


def _with_addend(kinds: Kinds, acc: Any, given: dict[str, Any]) -> Any:
    if kinds.adds:
        addend = given.pop(ADDEND)
        acc = acc + (given.pop(ADDEND_FACTOR) * addend if kinds.weighted else addend)
    return acc


def with_result(kinds: Kinds, returned: Any, scale_d: Any) -> Any:
    """What an epilogue returns, its first output with its scale, and its largest absolute value before that; Dynamo
    traces this."""
    if not kinds.d and not kinds.amax:
        return returned
    first, *others = returned if isinstance(returned, (tuple, list)) else (returned,)
    if kinds.amax:
        others = [*others, abs(first).max()]
    if kinds.d:
        first = first * scale_d
    return (first, *others) if others else first


def scaling_epilogue(kinds: Kinds, epilogue: Callable[..., Any] | None) -> Callable[..., Any]:
    """The caller's epilogue, if there is one, of what `applied` makes of the accumulator, and `with_result` of that."""

    def scaled(acc: Any, **given: Any) -> Any:
        acc = applied(kinds, acc, given)
        scale_d = given.pop(SCALE_OF_D) if kinds.d else None
        return with_result(kinds, acc if epilogue is None else epilogue(acc, **given), scale_d)

    return scaled


_known: dict[Hashable, Callable[..., Any]] = {}


def known_epilogue(
    call: ScaledCall, epilogue: Callable[..., Any] | None, function: str, keywords: Sequence[str]
) -> Callable[..., Any]:
    """`scaling_epilogue` with named parameters, traced once for each epilogue whose identity can be told.

    Args:
        call: the scales, and the operands of the caller's epilogue.
        epilogue: the caller's, or None.
        function, keywords: as of `warptile.arrays.epilogue_operands.check_names`.

    Raises:
        EpilogueError, ArgumentTypeError: as `check_names` and `warptile.epilogue.tracing.trace`.
    """
    identified = () if epilogue is None else identity(epilogue)
    key = call.kinds, identified, tuple(call.operands)
    if identified is not None and key in _known:
        return _known[key]
    kind = inspect.Parameter
    parameters = [kind("acc", kind.POSITIONAL_ONLY)]
    if epilogue is not None:
        check_names(function, [*keywords, *OWN], epilogue, [name for name in call.operands if name not in OWN])
        parameters = list(inspect.signature(epilogue).parameters.values())
    found = scaling_epilogue(call.kinds, epilogue)
    parameters += [kind(name, kind.KEYWORD_ONLY) for name in call.operands if name in OWN]
    found.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    found.warptile_program = trace(found, call.operands)  # type: ignore[attr-defined]
    if identified is not None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[key] = found
    return found


@dataclass(frozen=True, eq=False, repr=False)
class ScaledPlan(MatmulPlan):
    """A held plan of such a call, whose scales in arrays are given to each call.

    Attributes:
        restated: the plan with an epilogue in place of the scales.
        kinds: what the epilogue applies.
        beta: factor of C.
        beta_given: it was given; else it follows from whether there was a C.
        names: scales, and operands of the caller's epilogue.
    """

    restated: MatmulPlan
    kinds: Kinds
    beta: float
    beta_given: bool
    names: tuple[str, ...]

    @staticmethod
    def of(restated: MatmulPlan, kinds: Kinds, beta: Any, c: Any) -> ScaledPlan:
        """The plan of a call; ``beta`` and ``c`` as given."""
        given = (kinds.a != ABSENT, kinds.b != ABSENT, kinds.d)
        scales = [name for name, there in zip(("scale_a", "scale_b", "scale_d"), given, strict=True) if there]
        names = (*scales, *(name for name in restated.operands if name not in OWN))
        return ScaledPlan(restated, kinds, beta_of(beta, c), beta is not None, names)

    @property
    def gemms(self) -> tuple[GemmPlan, ...]:
        """Those of the plan with an epilogue."""
        return self.restated.gemms

    @property
    def operands(self) -> tuple[str, ...]:
        """Scales, and operands of the caller's epilogue."""
        return self.names

    def explain(self) -> str:
        """As `MatmulPlan.explain`."""
        return self.restated.explain()

    def __call__(
        self, a: Any, b: Any, /, c: Any = None, *, out: Any = None, scale_a: Any = None, scale_b: Any = None,
        scale_d: Any = None, **epilogue_tensors: Any,
    ) -> Any:  # fmt: skip
        """Multiply arrays like those that the plan was made for, with scales like those.

        Args:
            a, b, c, out, epilogue_tensors: as of `warptile.matmul`.
            scale_a, scale_b: scales that were arrays when the plan was made.
            scale_d: the scale of the result, if the plan was made with one.

        Returns:
            As `warptile.matmul`.

        Raises:
            ShapeError: scales that the plan was not made for, or that are missing.
            WarptileError: as `MatmulPlan`.
        """
        weight = None if c is None else self.beta
        result = scale_d, self.kinds.amax
        memory = stored_as(a, b, c, out)
        said = stated(memory, (None, weight, scale_a, scale_b), None, epilogue_tensors, result)
        known = getattr(self.restated, "calls", {})  # a plan of two GEMMs has two of them
        calls = known.get(memory.arrays[0].__class__)
        if calls is not None and said is not None:
            found = calls.repeat_fused(*said)
            if found is not None:
                return found
        check_addend(c, self.beta, beta_given=self.beta_given)
        scales = {"scale_a": scale_a, "scale_b": scale_b, "scale_d": scale_d}
        check_operands(self.operands, [*epilogue_tensors, *(name for name in scales if scales[name] is not None)])
        given = scaled_call(a, b, c, weight, (scale_a, scale_b), epilogue_tensors, result)
        if given is None or given.kinds != self.kinds:
            call = ", ".join(["c"] * self.kinds.adds + [f"{name}={name}" for name in self.operands])
            raise ShapeError(
                f"c, scale_a, scale_b, scale_d: not of the shapes that the plan was made for; give it arrays like "
                f"those, such as plan(a, b, {call})"
            )
        found = self.restated(a, b, out=out, **given.operands)
        calls = known.get(memory.arrays[0].__class__)
        if calls is not None and said is not None:
            at_a, at_b, _, _ = memory.arrays
            operands = {**given.operands, **memory.beside}
            calls.learn_restated(said, ((at_a, at_b, None, out), memory.key, None, operands))
        return found
