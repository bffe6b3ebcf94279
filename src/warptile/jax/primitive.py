"""The JAX primitive ``warptile_matmul``: result types, and how it is compiled into programs.

JAX multiplies with it what `warptile.jax.matmul` is given; `warptile.jax.transformations` has the rules of ``vmap`` and
of derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir

from warptile import api
from warptile.arrays.array_view import element_type
from warptile.arrays.operands import arrange
from warptile.arrays.xla_buffers import ProgramCall, StoredArray
from warptile.dtypes import DTYPES
from warptile.errors import UnsupportedError
from warptile.jax import handlers
from warptile.runtime.execute import has_gpu

Majors = tuple[str, str]
"""How the matrices of A and of B are stored: by rows (``"row"``) or by columns (``"col"``)."""

ROWS: Majors = ("row", "row")


@dataclass(frozen=True)
class Options:
    """What a program says of a matmul beside its arrays; all are static.

    Attributes:
        alpha: factor of the product, with the scales of float8 operands in it.
        beta: factor of C; zero where there is none.
        out_dtype, accumulate: names of element types, or None.
        precision, rung, max_sms, backend: as of `warptile.matmul`.
        config: names and values, or None.
    """

    alpha: float = 1
    beta: float = 0
    out_dtype: str | None = None
    accumulate: str | None = None
    precision: str | None = None
    rung: str | None = None
    config: tuple[tuple[str, int], ...] | None = None
    max_sms: int | None = None
    backend: str | None = None

    @property
    def without_addend(self) -> Options:
        """The same without C."""
        return replace(self, beta=0)

    def with_output(self, dtype: str) -> Options:
        """The same with another type of the result, by JAX's name."""
        return replace(self, out_dtype=element_type(dtype, "out_dtype").name)

    @property
    def of_derivative(self) -> Options:
        """Those that the matmuls of derivatives share with the one that is differentiated, which has its own kernel."""
        return replace(self, beta=0, rung=None, config=None)


def stored(array: Any, name: str = "a", major: str = "row") -> StoredArray:
    """An array of a program, or what stands for it while it is traced.

    Raises:
        DTypeError: an element type that no kernel takes.
        UnsupportedError: an extent that is not known when the program is compiled.
    """
    for extent in array.shape:
        if not isinstance(extent, int):
            raise UnsupportedError(
                f"{name}: got shape {tuple(array.shape)}; the kernel is chosen for extents that are known when the "
                f"program is compiled: export or trace it with whole numbers"
            )
    return StoredArray(element_type(str(array.dtype), name, "jax").name, tuple(array.shape), major)


def result_of(a: StoredArray, b: StoredArray, c: StoredArray | None, options: Options) -> StoredArray:
    """Type and shape of the result, by the rules of `warptile.matmul`; nothing is computed.

    Raises:
        WarptileError: as `warptile.matmul`.
    """
    product = arrange(
        a.view("a"), b.view("b"), None if c is None else c.view("c"), alpha=options.alpha, beta=options.beta,
        out_dtype=options.out_dtype, accumulate=options.accumulate, precision=options.precision, copy=False,
    )  # fmt: skip
    return StoredArray(product.problem.d.dtype.name, product.result_shape)


VARYING = ("manual_axis_type", "vma")
"""What versions of JAX call the axes of a ``jax.shard_map`` along which values differ."""


def alike(operands: Sequence[Any]) -> list[Any]:
    """The operands, all varying along the axes of a ``jax.shard_map`` along which one of them does."""
    axes = [_varying(jax.typeof(each)) for each in operands]
    everywhere = frozenset[str]().union(*axes)
    return [
        jax.lax.pcast(each, tuple(sorted(everywhere - own)), to="varying") if everywhere - own else each
        for each, own in zip(operands, axes, strict=True)
    ]


def _varying(kind: Any) -> frozenset[str]:
    """The axes of a ``jax.shard_map`` along which values of an abstract type differ."""
    found = [getattr(kind, attribute) for attribute in VARYING if hasattr(kind, attribute)]
    return frozenset(getattr(found[0], "varying", found[0])) if found else frozenset()


matmul_p = Primitive("warptile_matmul")
"""Operands A, B and, where ``options.beta`` is not zero, C, whose last axes (as many as the result has matrix axes) are
whole. Parameters ``options`` and ``majors``."""


def _abstract(*operands: Any, options: Options, majors: Majors) -> Any:
    a, b, *rest = (stored(each, name) for each, name in zip(operands, "abc", strict=False))
    found = result_of(a, b, rest[0] if rest else None, options)
    dtype = jax.numpy.dtype(DTYPES[found.dtype].numpy)
    if not _varying(operands[0]):
        return jax.core.ShapedArray(found.shape, dtype)
    whole = jax.sharding.PartitionSpec(*(None for _ in found.shape))
    place = jax.sharding.NamedSharding(operands[0].sharding.mesh, whole)
    return operands[0].update(shape=found.shape, dtype=dtype, weak_type=False, sharding=place)


@lru_cache(maxsize=4096)
def _program(options: Options, majors: Majors) -> Any:
    """The primitive alone as a program, for calls outside of one."""
    return jax.jit(lambda *operands: matmul_p.bind(*operands, options=options, majors=majors))


def _run(*operands: Any, options: Options, majors: Majors) -> Any:
    with jax.disable_jit(False):  # else the program would be run by calling this function again
        return _program(options, majors)(*operands)


matmul_p.def_abstract_eval(_abstract)
matmul_p.def_impl(_run)


# --- compiling it into programs ------------------------------------------------------------------------------------


def _described(avals: Any, result: Any, options: Options, majors: Majors) -> ProgramCall:
    of_operands = zip(avals, "abc", (*majors, "row"), strict=False)
    config = None if options.config is None else [list(each) for each in options.config]
    return ProgramCall(
        tuple(stored(aval, name, major) for aval, name, major in of_operands),
        stored(result, "out"),
        asdict(options) | {"config": config},
    )


def _legal_majors(avals: Any, result: Any, options: Options, majors: Majors, ordinal: int | None) -> Majors:
    """``majors`` where a kernel takes them, else rows. What no kernel takes in any layout is an error here."""
    if ordinal is not None and not has_gpu():
        return ROWS  # compiled for a GPU on a machine without one
    for each in dict.fromkeys((majors, ROWS)):
        call = _described(avals, result, options, each)
        a, b, c, _ = call.at(ordinal, 0, (0,) * (len(avals) + 1))
        if not api.plan(a, b, c, **call.keywords).copies:
            return each
    return ROWS


def _lowered(platform: str, context: Any, *operands: Any, options: Options, majors: Majors) -> Any:
    """The custom call of XLA's foreign function interface, for ``"cpu"`` or ``"cuda"``."""
    if platform == "cuda" and options.backend == "emulator":
        raise UnsupportedError(
            "backend='emulator': this program runs on a GPU, and the emulator takes arrays in host memory; leave "
            "backend out, or give arrays such as jax.device_put(a, jax.devices('cpu')[0])"
        )
    (result,) = context.avals_out
    ordinal = 0 if platform == "cuda" else None
    taken = _legal_majors(context.avals_in, result, options, majors, ordinal)
    call = _described(context.avals_in, result, options, taken)
    handlers.register(platform)
    rule = jax.ffi.ffi_lowering(
        handlers.TARGET,
        operand_layouts=[
            _minor_to_major(len(aval.shape), operand.major)
            for aval, operand in zip(context.avals_in, call.operands, strict=True)
        ],
    )
    return rule(context, *operands, call=call.text())


def _minor_to_major(axes: int, major: str) -> tuple[int, ...]:
    order = list(reversed(range(axes)))
    if major == "col":
        order[:2] = reversed(order[:2])
    return tuple(order)


def _lowered_for_cpu(context: Any, *operands: Any, **parameters: Any) -> Any:
    return _lowered("cpu", context, *operands, **parameters)


def _lowered_for_cuda(context: Any, *operands: Any, **parameters: Any) -> Any:
    return _lowered("cuda", context, *operands, **parameters)


def _refused(context: Any, *operands: Any, **parameters: Any) -> Any:
    platforms = ", ".join(context.module_context.platforms)
    raise UnsupportedError(
        f"this program is compiled for {platforms}; warptile multiplies on NVIDIA GPUs and on the CPU (emulated): give "
        f"arrays of these, such as jax.device_put(a, jax.devices('cpu')[0])"
    )


mlir.register_lowering(matmul_p, _refused)
mlir.register_lowering(matmul_p, _lowered_for_cpu, platform="cpu")
mlir.register_lowering(matmul_p, _lowered_for_cuda, platform="cuda")
