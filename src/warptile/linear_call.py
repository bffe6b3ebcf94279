"""linear: a matmul with the weights as ``torch.nn.Linear`` stores them."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from warptile.api import bound_calls, matmul
from warptile.arrays.array_view import is_tracer, view
from warptile.arrays.epilogue_operands import check_names
from warptile.arrays.options import refuse_unknown
from warptile.arrays.quantized_weights import QuantizedWeights
from warptile.arrays.split_matrix import SplitMatrix
from warptile.calls.call_options import options_of, said_of
from warptile.calls.packed_call import PACKED, PACKED_LEFT
from warptile.epilogue.identity import MadeOf, identity
from warptile.epilogue.tracing import Reduced, operand_names, refuse
from warptile.errors import DTypeError, LayoutError, ShapeError
from warptile.torch_route import linear_in_torch, requires_gradient, shown_to_dynamo, torch_sees, traced_linear

if TYPE_CHECKING:
    from warptile.runtime.call_cache import CallCache, Fused

LINEAR = "linear"
"""What a bound call of `linear` is told from one of `matmul` by."""

OPTIONS_OF_LINEAR = ("out_dtype", "accumulate", "precision", "max_sms", "backend", "batch_invariant")
"""Keywords of `linear` that are no arrays, in the order of the tuple that its calls are found by."""

BIAS = "linear_bias"
"""The bias among the operands of an epilogue."""

OF_MATMUL = ("out", "alpha", "scale_a", "scale_b", "scale_d", "amax", "rung", "config")
"""Keywords that are handed on to `warptile.matmul`."""

KEYWORDS = ("x", "w", "bias", "epilogue", *OPTIONS_OF_LINEAR, *OF_MATMUL)
"""Names of all arguments of `linear`, which no operand of an epilogue has."""

MATMULS_OWN = ("c", "beta")
"""Arguments of `warptile.matmul` that `linear` has not, and no operand of its epilogue can have the name of."""


_C = re.compile(r"\bc(?= is|\.)")


def linear(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    out_dtype: Any = None,
    accumulate: Any = None,
    precision: str | None = None,
    max_sms: int | None = None,
    backend: str | None = None,
    batch_invariant: bool = False,
    epilogue: Callable[..., Any] | None = None,
    **epilogue_tensors: Any,
) -> Any:
    """``x @ w.T + bias``, as ``torch.nn.functional.linear``, for NumPy, torch, CuPy and JAX arrays.

    Args:
        x: (..., K), any leading axes.
        w: (N, K), as ``torch.nn.Linear`` stores weights, or (K,); or a `warptile.QuantizedWeights`, or a
            `warptile.SplitMatrix` with ``axis=1``.
        bias: (N,), or a scalar array with a ``w`` of shape (K,); of the result's type.
        out_dtype, accumulate, precision, max_sms, backend, batch_invariant: as of `warptile.matmul`.
        epilogue: as of `warptile.matmul`; its accumulator has the bias in it.
        epilogue_tensors: the epilogue's operands, by name: numbers, and arrays of shape (N,) or of the result's. Also,
            as of `warptile.matmul`: ``out``, ``alpha`` (of the product, not of the bias), ``scale_a`` and ``scale_b``
            (of x and of w.T), ``scale_d``, ``amax``, ``rung`` and ``config``.

    Returns:
        (..., N), or (...) with a ``w`` of shape (K,). A tuple of them where the epilogue returns one.

    Raises:
        ShapeError: shapes that do not multiply, or a bias of another shape.
        DTypeError: element types that no kernel takes together.
        WarptileError: as `warptile.matmul`.
    """
    said = (LINEAR, out_dtype, accumulate, precision, max_sms, backend, batch_invariant)
    calls = bound_calls(x.__class__)
    if calls is not None and not calls.binds_linear:
        calls = None
    if epilogue is not None or epilogue_tensors:
        return _fused_layer(x, w, bias, said, epilogue, epilogue_tensors, calls)
    if calls is not None:
        found = calls.repeat(x, w, bias, None, said)
        if found is not None:
            return found
    options = dict(zip(OPTIONS_OF_LINEAR, said[1:], strict=True))
    if type(w) in PACKED:
        check_linear(x, w, bias)
        return product_of_rows(x, w, bias, options)
    if requires_gradient(x, w, bias):
        return linear_in_torch(x, w, bias, options)
    if not fits(x, w, bias):
        if torch_sees(x, w, bias, None):  # autocast may cast what does not fit
            return linear_in_torch(x, w, bias, options)
        check_linear(x, w, bias)
    return product_of_rows(x, w, bias, options, binds=True)


def _check_names(bias: Any, epilogue: Callable[..., Any] | None, given: tuple[str, ...]) -> None:
    """Raise where an operand has no name that the epilogue knows, or one of `linear`'s own."""
    operands = () if epilogue is None else _operand_names(epilogue)
    if epilogue is not None and any(name in KEYWORDS or name in MATMULS_OWN for name in operands):
        check_names("linear", KEYWORDS, epilogue, ())
        check_names("matmul", MATMULS_OWN, epilogue, ())
    unknown = [name for name in given if name not in operands and name not in OF_MATMUL]
    if not unknown:
        return

    def call(wrong: str, right: str) -> str:
        said = [] if bias is None else ["bias"]
        said += [] if epilogue is None else ["epilogue"]
        said += [right if name == wrong else name for name in given]
        return f"linear(x, w, {', '.join(f'{name}={name}' for name in said)})"

    there = {"x", "w", *given, *(() if bias is None else ("bias",))}
    names = [name for name in (*operands, *KEYWORDS) if name not in there]
    refuse_unknown("linear", tuple(names), dict.fromkeys(unknown), call)


_operand_names = lru_cache(maxsize=256)(operand_names)


def fits(x: Any, w: Any, bias: Any) -> bool:
    """Whether these are arrays of the usual shapes, which is quicker to see than what is wrong with others."""
    try:
        shape = w.shape
        return (
            len(shape) == 2
            and x.shape[-1] == shape[1]
            and x.dtype == w.dtype
            and (bias is None or (len(bias.shape) == 1 and bias.shape[0] == shape[0]))
        )
    except (AttributeError, IndexError):
        return False


def check_linear(x: Any, w: Any, bias: Any) -> None:
    """Raise unless the arrays fit each other as operands of `linear`.

    Raises:
        ShapeError, DTypeError: they do not.
    """
    for name, operand in (("x", x), ("w", w), ("bias", bias)):
        if not hasattr(operand, "shape") and not (name == "bias" and bias is None):
            lent = hasattr(operand, "__dlpack__")
            raise DTypeError(
                f"{name}: got {type(operand).__name__}, which {'has no shape' if lent else 'is not an array'}; linear "
                f"takes arrays x (..., K), w (N, K) and bias (N,), such as "
                f"{f'{name} = numpy.from_dlpack({name})' if lent else 'linear(x, w)'}"
            )
    x_shape, w_shape = tuple(x.shape), tuple(w.shape)
    if len(w_shape) not in (1, 2):
        raise ShapeError(
            f"w: got shape {w_shape}; linear takes weights of shape (N, K), as torch.nn.Linear stores them: "
            f"for other shapes there is warptile.matmul(x, w)"
        )
    if not x_shape:
        raise ShapeError("x: got a scalar; it needs at least one axis: x.reshape(1)")
    if x_shape[-1] != w_shape[-1]:
        swapped = len(w_shape) == 2 and x_shape[-1] == w_shape[0]
        turned = "weights quantized as quantize(w.T)" if isinstance(w, QuantizedWeights) else "linear(x, w.T)"
        raise ShapeError(
            f"x has shape {x_shape} and w has shape {w_shape}: the last axis of x ({x_shape[-1]}) must equal the last "
            f"axis of w ({w_shape[-1]}), such as {turned if swapped else f'a w of shape (N, {x_shape[-1]})'}"
        )
    if isinstance(w, SplitMatrix) and w.axis != 1:
        raise LayoutError(
            f"w: got a SplitMatrix of shape {w_shape} with slices along axis {w.axis}; linear sums over axis 1 of w: "
            f"linear(x, split(w, axis=1))"
        )
    if type(w) not in PACKED and x.dtype != w.dtype:  # matmul compares activations with what w is for
        raise DTypeError(
            f"x is {x.dtype} and w is {w.dtype}; both need one type, such as linear(x, w.{_conversion(w)}(x.dtype))"
        )
    if bias is not None and tuple(bias.shape) != w_shape[:-1]:
        raise ShapeError(
            f"bias: got shape {tuple(bias.shape)} with a w of shape {w_shape}; it has the shape {w_shape[:-1]}, one "
            f"number for each output"
        )


def _conversion(array: Any) -> str:
    return "astype" if hasattr(array, "astype") else "to"


def check_each(x: Any, w: Any) -> None:
    """Raise what keeps one of the arrays by itself from being an operand, with the name that `linear` has for it.

    Raises:
        DTypeError, LayoutError: an element type that no kernel takes, or memory that cannot be read.
    """
    for name, operand in (("x", x), ("w", w)):
        if type(operand) not in PACKED | PACKED_LEFT and not is_tracer(operand):
            view(operand, name)


def product_of_rows(x: Any, w: Any, bias: Any, options: dict[str, Any], *, binds: bool = False) -> Any:
    """``x @ w.T + bias`` of arrays that were checked: all rows of ``x`` in one GEMM.

    Args:
        x, w, bias: as of `linear`.
        options: of `warptile.matmul`.
        binds: these are arrays and options of a call of `linear`, which later ones are found by.

    Returns:
        As `linear`.
    """
    transposed = w.T if len(w.shape) == 2 else w
    rows = x if len(x.shape) <= 2 else x.reshape((math.prod(x.shape[:-1]), x.shape[-1]))
    try:
        d = matmul(rows, transposed, bias, **options)
    except (DTypeError, LayoutError) as error:
        check_each(x, w)
        if bias is None or not str(error).startswith("c is "):
            raise
        raise type(error)(_C.sub("bias", str(error))) from None  # which matmul knows as c
    calls = bound_calls(type(rows)) if binds else None
    if calls is not None and calls.binds_linear:
        calls.learn_linear((x, w, bias), (LINEAR, *options.values()), (rows, transposed, bias), options_of(**options))
    return d if rows is x else d.reshape((*x.shape[:-1], *w.shape[:-1]))


def _fused_layer(
    x: Any, w: Any, bias: Any, said: tuple[Any, ...], epilogue: Callable[..., Any] | None, operands: dict[str, Any],
    calls: CallCache | None,
) -> Any:  # fmt: skip
    """A linear layer with an epilogue, or with more options of `matmul`. One with an epilogue is bound if its GEMM is.

    Args:
        x, w, bias, epilogue, operands: as of `linear`.
        said: what it is told from other calls on the same arrays by.
        calls: bound calls, if those of `linear` can be.
    """
    known = None if calls is None or epilogue is None else identity(epilogue)
    with_bias = operands if bias is None else operands | {BIAS: bias}
    given: Fused = (x, w, None, None), said, known, with_bias
    if calls is not None and known is not None:
        found = calls.repeat_fused(*given)
        if found is not None:
            return found
    if not fits(x, w, bias):
        check_linear(x, w, bias)
    _check_names(bias, epilogue, tuple(operands))
    options = dict(zip(OPTIONS_OF_LINEAR, said[1:], strict=True))
    if calls is None or known is None or any(name in OF_MATMUL for name in operands):
        return _fused_rows(x, w, bias, options, epilogue, operands)
    multiplied: list[Fused] = []
    found = _fused_rows(x, w, bias, options, epilogue, operands, multiplied.append)
    if len(multiplied) == 1:
        calls.learn_restated(given, multiplied[0], tuple(x.shape[:-1]) if len(x.shape) > 2 else None)
    return found


def _fused_rows(
    x: Any,
    w: Any,
    bias: Any,
    options: dict[str, Any],
    epilogue: Callable[..., Any] | None,
    operands: dict[str, Any],
    multiplied: Callable[[Fused], None] | None = None,
) -> Any:
    """`product_of_rows` with an epilogue, to which the bias is one more operand, or with more options of `matmul`.
    ``multiplied`` is called with what its matmul is found by."""
    addend = bias if epilogue is None else None
    if epilogue is not None:
        if bias is not None:
            operands = operands | {BIAS: bias}
        if bias is not None or len(x.shape) > 2:
            epilogue = _linear_epilogue(epilogue, bias is not None, len(x.shape) > 2)

    def multiply(rows: Any, transposed: Any, given: dict[str, Any]) -> Any:
        try:
            found = matmul(rows, transposed, addend, epilogue=epilogue, **options, **given)
        except (DTypeError, LayoutError):
            check_each(x, w)
            raise
        if multiplied is not None and epilogue is not None:
            multiplied(((rows, transposed, None, None), said_of(**options), identity(epilogue), given))
        return found

    return by_rows(x, w, operands, multiply)


def by_rows(x: Any, w: Any, operands: dict[str, Any], multiply: Callable[[Any, Any, dict[str, Any]], Any]) -> Any:
    """A linear layer with an epilogue, all rows of ``x`` in one GEMM.

    Args:
        x, w: as of `linear`, checked.
        operands: of the epilogue; those with the leading axes of ``x`` get their rows in one axis, too.
        multiply: ``multiply(rows, transposed weights, operands)``: the matmul.

    Returns:
        As `linear`.
    """
    leading = tuple(x.shape[:-1])
    transposed = w.T if len(w.shape) == 2 else w
    if len(leading) <= 1 or operands.get("out") is not None:  # rows of an out cannot always be joined without a copy
        return multiply(x, transposed, operands)
    rows = math.prod(leading)

    def flat(each: Any) -> Any:
        shape = tuple(getattr(each, "shape", ()))
        return each.reshape((rows, *shape[len(leading) :])) if shape[: len(leading)] == leading else each

    found = multiply(x.reshape((rows, x.shape[-1])), transposed, {name: flat(each) for name, each in operands.items()})

    def as_given(each: Any) -> Any:  # w.shape[0] columns, or half of them
        return each.reshape((*leading, *each.shape[1:]))

    return tuple(map(as_given, found)) if isinstance(found, tuple) else as_given(found)


@lru_cache(maxsize=256)
def _linear_epilogue(epilogue: Callable[..., Any], has_bias: bool, joins_rows: bool) -> Callable[..., Any]:
    """`of_linear` with the parameters of the epilogue, and the bias."""
    found = of_linear(epilogue, has_bias, joins_rows)
    signature = inspect.signature(epilogue)
    added = [inspect.Parameter(BIAS, inspect.Parameter.KEYWORD_ONLY)] if has_bias else []
    found.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *added]
    )
    found.warptile_made_of = MadeOf(  # type: ignore[attr-defined]
        ("linear", has_bias, joins_rows), epilogue
    )
    return found


def of_linear(epilogue: Callable[..., Any], has_bias: bool, joins_rows: bool) -> Callable[..., Any]:
    """The epilogue of the accumulator plus the bias, checked where all rows of ``x`` are in one matrix."""

    def found(acc: Any, **operands: Any) -> Any:
        returned = epilogue(acc + operands.pop("linear_bias") if has_bias else acc, **operands)
        return checked_reductions(returned) if joins_rows else returned

    return found


def checked_reductions(returned: Any) -> Any:
    """What an epilogue returns, where all rows of ``x`` are in one matrix: reductions are those of a row.

    Raises:
        RefusedError: they go over rows.
    """
    for each in returned if isinstance(returned, (tuple, list)) else ():
        if isinstance(each, Reduced) and each.how.over != "columns":
            refuse(
                "linear multiplies all rows of an x of more than two axes as one matrix, so its reductions are those "
                "of rows, axis=-1; for others write matmul(x, w.T, epilogue=...)"
            )
    return returned


shown_to_dynamo(linear, traced_linear)
