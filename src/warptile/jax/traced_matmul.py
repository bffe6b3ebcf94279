"""What a user calls: arguments checked and brought into the form of the primitive."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Never

import jax
import numpy as np

from warptile.arrays.options import (
    beta_of,
    element_named,
    number,
    precision_named,
    refuse_unknown,
    scale_factor,
    tunables,
    whole_number,
)
from warptile.arrays.sparse import SparseMatrix
from warptile.errors import ArgumentTypeError, DTypeError, LayoutError, ShapeError, UnsupportedError
from warptile.jax.primitive import ROWS, Options, alike, matmul_p, result_of, stored
from warptile.rungs import rung as rung_named
from warptile.runtime.execute import BACKENDS


def matmul(
    a: Any,
    b: Any,
    /,
    c: Any = None,
    *,
    alpha: float = 1,
    beta: float | None = None,
    out_dtype: Any = None,
    accumulate: Any = None,
    precision: str | None = None,
    scale_a: float | None = None,
    scale_b: float | None = None,
    rung: str | None = None,
    config: Mapping[str, int] | None = None,
    max_sms: int | None = None,
    backend: str | None = None,
    **unknown: Never,
) -> jax.Array:
    """``alpha * a @ b + beta * c`` of JAX arrays, eagerly or in functions that JAX transforms.

    Under ``jax.jit`` it is one custom call of XLA's foreign function interface, on XLA's own stream and buffers. The
    handler is a ctypes callback of the running process: nothing is compiled for it on the user's machine but the GEMM
    itself, by NVRTC, when XLA runs the program for the first time. On a GPU the handler queues bound launches
    (`warptile.runtime.xla_calls`) and does not wait. On the CPU the same kind of handler, registered for XLA's CPU
    client, runs the emulator on the buffers where they are. (``jax.pure_callback`` would serve there too; it would
    share nothing with the path on a GPU, which tests on the CPU now cover up to the launch.)

    ``vmap`` becomes one matmul with a further leading axis, or more rows; no loop. Derivatives of any order, forward
    and reverse, are matmuls of the same primitive, and read transposed operands without a copy where a kernel takes
    them so. They have the type of what is differentiated: cotangents are rounded to the operands' type before they are
    multiplied (with float8 operands to bfloat16). ``rung`` and ``config`` do not apply to them.

    Args:
        a: (..., M, K) or (K,), a JAX array or, as in ``jax.numpy``, a NumPy array beside one; types as of
            `warptile.matmul`.
        b: (..., K, N) or (K,), of the same type.
        c: broadcastable to the result and of its type.
        alpha, beta, scale_a, scale_b: numbers, as of `warptile.matmul`. They are static: part of the program.
        out_dtype, accumulate, precision, rung, config, max_sms: static too, as of `warptile.matmul`.
        backend: as of `warptile.matmul`; it has to agree with where XLA runs the program.

    Returns:
        (..., M, N), without the axes that a 1-D operand lacks: bit for bit what `warptile.matmul` returns for the same
        arrays.

    Raises:
        WarptileError: as `warptile.matmul`, when the function is traced or compiled.
        ArgumentTypeError: an option that is being traced.
    """
    refuse_unknown("matmul", _KEYWORDS, unknown)
    static = {"alpha": alpha, "beta": beta, "scale_a": scale_a, "scale_b": scale_b, "max_sms": max_sms}
    for name, value in static.items():
        if isinstance(value, jax.core.Tracer):
            raise ArgumentTypeError(f"{name}: got a value that JAX is tracing; {_STATIC[name]}")
    a, b = _array(a, "a"), _array(b, "b")
    left = stored(a).view("a")
    factor = number(alpha, "alpha") * scale_factor(scale_a, "scale_a", left) * scale_factor(scale_b, "scale_b", left)
    weight = beta_of(beta, c)
    if rung is not None:
        rung_named(rung)
    of_config = tunables(config, rung)
    if backend not in (None, "auto", *BACKENDS):
        raise UnsupportedError(f"backend: got {backend!r}; it takes 'gpu', 'emulator' or 'auto' (the default)")
    output, accumulator = element_named(out_dtype, "out_dtype"), element_named(accumulate, "accumulate")
    options = Options(
        alpha=factor,
        beta=weight,
        out_dtype=output.name if output else None,
        accumulate=accumulator.name if accumulator else None,
        precision=precision_named(precision),
        rung=rung,
        config=None if of_config is None else tuple(of_config.items()),
        max_sms=whole_number(max_sms, "max_sms"),
        backend=backend,
    )
    if weight == 0:
        return _bound(options, a, b)
    c = _array(c, "c")
    return _bound(options, a, b, _by_matrices(c, a, b, options))


_KEYWORDS = tuple(
    name
    for name, each in inspect.signature(matmul).parameters.items()
    if each.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
)

_MULTIPLY = "it is a number that the program is compiled for: multiply the result, such as alpha * matmul(a, b)"
_STATIC = {
    "alpha": _MULTIPLY,
    "beta": "it is a number that the program is compiled for: scale c instead, such as matmul(a, b, beta * c)",
    "scale_a": _MULTIPLY.replace("alpha", "scale_a"),
    "scale_b": _MULTIPLY.replace("alpha", "scale_b"),
    "max_sms": "it is a number that the program is compiled for: jax.jit(f, static_argnames='max_sms')",
}
"""What to do with an option that is being traced."""


def _bound(options: Options, *operands: Any) -> jax.Array:
    result: jax.Array = matmul_p.bind(*alike(operands), options=options, majors=ROWS)
    return result


def _array(value: Any, name: str) -> Any:
    """An operand as a JAX array or a tracer."""
    if isinstance(value, SparseMatrix):
        raise UnsupportedError(
            f"{name}: got a SparseMatrix; programs of JAX multiply dense arrays, such as {name}.to_dense(): call "
            f"warptile.matmul outside of them"
        )
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            raise DTypeError(f"{name}: got an array of Python objects; give numpy.asarray({name}, dtype='float32')")
        return jax.numpy.asarray(value)
    if hasattr(value, "__dlpack__"):
        kind = type(value).__module__.partition(".")[0]
        raise LayoutError(
            f"{name} is of {kind} and matmul in a program of JAX takes JAX and NumPy arrays; give "
            f"jax.dlpack.from_dlpack({name})"
        )
    raise DTypeError(
        f"{name}: got {type(value).__name__}, which is not an array; it takes JAX and NumPy arrays, such as "
        f"jax.numpy.asarray({name}, dtype='float32')"
    )


def _by_matrices(c: Any, a: Any, b: Any, options: Options) -> Any:
    """C with whole matrices (vectors, where an operand is 1-D), which no kernel broadcasts; leading axes as given."""
    shape = result_of(stored(a), stored(b), None, options.without_addend).shape
    try:
        fits = np.broadcast_shapes(c.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"c: shape {c.shape} does not broadcast to {shape}; give it that shape, or extents of 1 where it repeats"
        )
    axes = (a.ndim > 1) + (b.ndim > 1)
    inner = shape[len(shape) - axes :]
    return jax.numpy.broadcast_to(c, (*c.shape[: max(c.ndim - axes, 0)], *inner))
