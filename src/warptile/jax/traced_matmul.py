"""What a user calls: arguments checked and brought into the form of the primitive."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from warptile.arrays.epilogue_operands import check_matrices, check_names
from warptile.arrays.options import (
    beta_of,
    element_named,
    flag,
    number,
    precision_named,
    refuse_unknown,
    scale_factor,
    tunables,
    whole_number,
)
from warptile.arrays.quantized_weights import QuantizedWeights
from warptile.arrays.sparse import SparseMatrix
from warptile.arrays.split_matrix import SplitMatrix
from warptile.arrays.xla_buffers import ProgramEpilogue
from warptile.calls.gated_call import gated_epilogue, gated_product
from warptile.calls.scaled_call import known_epilogue, scaled_call
from warptile.epilogue.identity import identity, traced
from warptile.epilogue.program_text import text_of, unreduced
from warptile.errors import ArgumentTypeError, DTypeError, EpilogueError, LayoutError, ShapeError, UnsupportedError
from warptile.jax.epilogue_in_jax import reduced
from warptile.jax.fused_primitive import fused_p
from warptile.jax.primitive import ROWS, Options, alike, matmul_p, results_of, stored
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
    epilogue: Callable[..., Any] | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    scale_d: Any = None,
    amax: bool = False,
    rung: str | None = None,
    config: Mapping[str, int] | None = None,
    max_sms: int | None = None,
    backend: str | None = None,
    batch_invariant: bool = False,
    **epilogue_tensors: Any,
) -> Any:
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
        alpha, beta: numbers, as of `warptile.matmul`. They are static: part of the program.
        scale_a, scale_b, scale_d, amax: as of `warptile.matmul`. Numbers are static; arrays are values of the program.
        out_dtype, accumulate, precision, rung, config, max_sms, batch_invariant: static too, as of `warptile.matmul`.
        backend: as of `warptile.matmul`; it has to agree with where XLA runs the program.
        epilogue: as of `warptile.matmul`: part of the same custom call. It is differentiated by JAX, as the same
            operations of ``jax.numpy`` on the accumulators, which a call that is differentiated keeps. What it reduces
            is an output in float32 that XLA reduces.
        epilogue_tensors: its operands by name. JAX arrays of any shape that broadcasts are values of the program,
            numbers static. A seed is a number.

    Returns:
        (..., M, N), without the axes that a 1-D operand lacks: bit for bit what `warptile.matmul` returns for the same
        arrays. A tuple of outputs where the epilogue returns one.

    Raises:
        WarptileError: as `warptile.matmul`, when the function is traced or compiled.
        ArgumentTypeError: an option that is being traced.
    """
    scaled = scaled_call(a, b, c, beta, (scale_a, scale_b), epilogue_tensors, (scale_d, amax))
    if scaled is not None:
        return matmul(
            a, b, alpha=alpha, out_dtype=out_dtype, accumulate=accumulate, precision=precision,
            epilogue=known_epilogue(scaled, epilogue, "matmul", _KEYWORDS), scale_a=scaled.scale_a,
            scale_b=scaled.scale_b, rung=rung, config=config, max_sms=max_sms, backend=backend,
            batch_invariant=batch_invariant, **scaled.operands,
        )  # fmt: skip
    if epilogue is None:
        refuse_unknown("matmul", _KEYWORDS, epilogue_tensors)
    else:
        check_names("matmul", _KEYWORDS, epilogue, epilogue_tensors)
        gated = gated_epilogue(epilogue, identity(epilogue), epilogue_tensors)
        if gated is not None:
            said = {
                "alpha": alpha, "beta": beta, "out_dtype": out_dtype, "accumulate": accumulate, "precision": precision,
                "scale_a": scale_a, "scale_b": scale_b, "rung": rung, "config": config, "max_sms": max_sms,
                "backend": backend, "batch_invariant": batch_invariant,
            }  # fmt: skip
            return gated_product(_without_out, (a, b, c, None), said, gated, epilogue_tensors)
    static = {"alpha": alpha, "beta": beta, "max_sms": max_sms, "batch_invariant": batch_invariant}
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
        batch_invariant=flag(batch_invariant, "batch_invariant"),
    )
    operands = [a, b] if weight == 0 else [a, b, _by_matrices(_array(c, "c"), a, b, options, epilogue is not None)]
    if epilogue is not None:
        return _fused(options, operands, epilogue, epilogue_tensors)
    return matmul_p.bind(*alike(operands), options=options, majors=ROWS)


def _without_out(a: Any, b: Any, c: Any = None, *, out: None = None, **options: Any) -> Any:
    return matmul(a, b, c, **options)


_KEYWORDS = tuple(
    name
    for name, each in inspect.signature(matmul).parameters.items()
    if each.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
)

_MULTIPLY = "it is a number that the program is compiled for: multiply the result, such as alpha * matmul(a, b)"
_STATIC = {
    "alpha": _MULTIPLY,
    "beta": "it is a number that the program is compiled for: scale c instead, such as matmul(a, b, beta * c)",
    "max_sms": "it is a number that the program is compiled for: jax.jit(f, static_argnames='max_sms')",
    "batch_invariant": "it is True or False: jax.jit(f, static_argnames='batch_invariant')",
}
"""What to do with an option that is being traced."""


def _fused(options: Options, arrays: list[Any], epilogue: Callable[..., Any], operands: Mapping[str, Any]) -> Any:
    """A matmul with an epilogue."""
    program = traced(epilogue, operands)
    tensors: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    for name, each in operands.items():
        if name in program.seeds:
            numbers[name] = _seed(name, each)
        elif isinstance(each, (jax.Array, np.ndarray)):
            tensors[name] = _array(each, name)
        else:
            numbers[name] = number(each, name)
    made = ProgramEpilogue(
        text_of(unreduced(program, "float64" if str(arrays[0].dtype) == "float64" else "float32")),
        tuple(tensors), tuple(numbers.items()),
    )  # fmt: skip
    if any(program.reductions):
        check_matrices((arrays[0].ndim == 1, arrays[1].ndim == 1))
    results = fused_p.bind(*alike([*arrays, *tensors.values()]), options=options, epilogue=made)
    found = [
        each if how is None else reduced(each, how)
        for each, how in zip(results, program.output_reductions, strict=True)
    ]
    return tuple(found) if len(found) > 1 else found[0]


def _seed(name: str, value: Any) -> int:
    if isinstance(value, jax.core.Tracer):
        raise EpilogueError(
            f"{name}: got a value that JAX is tracing; a seed is a number that the program is compiled for: give "
            f"{name}=1234, or a mask as an operand: matmul(a, b, epilogue=lambda acc, mask: acc * mask, mask=mask)"
        )
    found = value.item() if isinstance(value, np.integer) else value
    if not isinstance(found, int) or isinstance(found, bool):
        raise EpilogueError(f"{name}: got {value!r}; a seed is a whole number, such as {name}=1234")
    return found


_DENSE = {SparseMatrix: "to_dense()", QuantizedWeights: "dequantize().T", SplitMatrix: "matrix"}
"""What packed operands have that is a dense one in their place."""


def _array(value: Any, name: str) -> Any:
    """An operand as a JAX array or a tracer."""
    if isinstance(value, tuple(_DENSE)):
        raise UnsupportedError(
            f"{name}: got a {type(value).__name__}; programs of JAX multiply dense arrays, such as "
            f"jax.numpy.asarray({name}.{_DENSE[type(value)]}): call warptile.matmul outside of them"
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


def _by_matrices(c: Any, a: Any, b: Any, options: Options, fused: bool) -> Any:
    """C with whole matrices (vectors, where an operand is 1-D), which no kernel broadcasts; leading axes as given."""
    plain = replace(options, beta=0, out_dtype=None) if fused else options.without_addend
    shape = results_of((stored(a), stored(b, "b")), plain)[0].shape
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
