"""The JAX primitive ``warptile_matmul``: result types, and how it is compiled into programs.

JAX multiplies with it what `warptile.jax.matmul` is given; `warptile.jax.transformations` has the rules of ``vmap`` and
of derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir

from warptile import api
from warptile.arrays.array_view import element_type
from warptile.arrays.operands import arrange
from warptile.arrays.xla_buffers import ProgramCall, ProgramEpilogue, StoredArray
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
        precision, rung, max_sms, backend, batch_invariant: as of `warptile.matmul`.
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
    batch_invariant: bool = False

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


def results_of(
    operands: Sequence[StoredArray], options: Options, epilogue: ProgramEpilogue | None = None
) -> tuple[StoredArray, ...]:
    """Types and shapes of the results, by the rules of `warptile.matmul`; nothing is computed.

    Args:
        operands: A, B, C where ``options.beta`` is not zero, and the epilogue's tensors.
        options: of the matmul.
        epilogue: without reductions; None where there is none.

    Raises:
        WarptileError: as `warptile.matmul`.
    """
    names = () if epilogue is None else epilogue.tensors
    views = [
        each.view(name) for each, name in zip(operands, (*"abc"[: len(operands) - len(names)], *names), strict=True)
    ]
    tensors = dict(zip(names, views[len(views) - len(names) :], strict=True))
    a, b, *addend = views[: len(views) - len(names)]
    product = arrange(
        a, b, addend[0] if addend else None, alpha=options.alpha, beta=options.beta, out_dtype=options.out_dtype,
        accumulate=options.accumulate, precision=options.precision, copy=False,
        program=None if epilogue is None else epilogue.program,
        operands=tensors if epilogue is None else tensors | dict(epilogue.numbers),
    )  # fmt: skip
    further = () if product.epilogue is None else product.epilogue.types
    return tuple(StoredArray(each.name, product.result_shape) for each in (product.problem.d.dtype, *further))


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
    (found,) = results_of(stored_operands(operands), options)
    return abstract(found, operands[0])


def stored_operands(
    operands: Sequence[Any], majors: Sequence[str] = ROWS, epilogue: ProgramEpilogue | None = None
) -> tuple[StoredArray, ...]:
    """The operands of a primitive, or their abstract values."""
    tensors = () if epilogue is None else epilogue.tensors
    names = (*"abc"[: len(operands) - len(tensors)], *tensors)
    orders = (*majors, *["row"] * (len(operands) - len(majors)))
    return tuple(stored(each, name, major) for each, name, major in zip(operands, names, orders, strict=True))


def abstract(found: StoredArray, like: Any) -> Any:
    """A result as an abstract value that varies along the axes of a ``jax.shard_map`` along which ``like`` does."""
    dtype = jax.numpy.dtype(DTYPES[found.dtype].numpy)
    if not _varying(like):
        return jax.core.ShapedArray(found.shape, dtype)
    whole = jax.sharding.PartitionSpec(*(None for _ in found.shape))
    place = jax.sharding.NamedSharding(like.sharding.mesh, whole)
    return like.update(shape=found.shape, dtype=dtype, weak_type=False, sharding=place)


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


def described(
    operands: tuple[StoredArray, ...], results: Sequence[Any], options: Options, epilogue: ProgramEpilogue | None = None
) -> ProgramCall:
    """A matmul of a program."""
    config = None if options.config is None else [list(each) for each in options.config]
    first, *further = (stored(each, "out") for each in results)
    return ProgramCall(operands, first, asdict(options) | {"config": config}, epilogue, tuple(further))


def takes(call: ProgramCall, ordinal: int | None) -> bool:
    """Whether a kernel takes a call without copies of operands.

    Raises:
        WarptileError: no kernel takes it at all.
    """
    addresses = (0,) * (len(call.operands) + 1 + len(call.further))
    a, b, c, _, tensors = call.at(ordinal, 0, addresses)
    return not api.plan(a, b, c, **call.keywords, **tensors).copies


def place_of(platform: str, options: Options) -> int | None:
    """The ordinal of the GPU that a program is planned for, ``None`` for the host.

    Raises:
        UnsupportedError: the emulator is asked for, on a GPU.
    """
    if platform == "cuda" and options.backend == "emulator":
        raise UnsupportedError(
            "backend='emulator': this program runs on a GPU, and the emulator takes arrays in host memory; leave "
            "backend out, or give arrays such as jax.device_put(a, jax.devices('cpu')[0])"
        )
    return 0 if platform == "cuda" else None


def custom_call(platform: str, context: Any, operands: Sequence[Any], call: ProgramCall) -> Any:
    """The custom call of XLA's foreign function interface, for ``"cpu"`` or ``"cuda"``."""
    handlers.register(platform)
    layouts = [_minor_to_major(len(each.shape), each.major) for each in call.operands]
    return jax.ffi.ffi_lowering(handlers.TARGET, operand_layouts=layouts)(context, *operands, call=call.text())


def _lowered(platform: str, context: Any, *operands: Any, options: Options, majors: Majors) -> Any:
    ordinal = place_of(platform, options)

    def call(majors: Majors) -> ProgramCall:
        return described(stored_operands(context.avals_in, majors), context.avals_out, options)

    found = call(ROWS)
    if ordinal is None or has_gpu():  # else compiled for a GPU on a machine without one
        # What no kernel takes in any layout is an error here.
        found = next(filter(lambda each: takes(each, ordinal), map(call, dict.fromkeys((majors, ROWS)))), found)
    return custom_call(platform, context, operands, found)


def _minor_to_major(axes: int, major: str) -> tuple[int, ...]:
    order = list(reversed(range(axes)))
    if major == "col":
        order[:2] = reversed(order[:2])
    return tuple(order)


def _refused(context: Any, *operands: Any, **parameters: Any) -> Any:
    platforms = ", ".join(context.module_context.platforms)
    raise UnsupportedError(
        f"this program is compiled for {platforms}; warptile multiplies on NVIDIA GPUs and on the CPU (emulated): give "
        f"arrays of these, such as jax.device_put(a, jax.devices('cpu')[0])"
    )


def register_lowering(primitive: Primitive, lowered: Callable[..., Any]) -> None:
    """Have a primitive compiled by ``lowered(platform, context, *operands, **parameters)``."""
    mlir.register_lowering(primitive, _refused)
    for platform in ("cpu", "cuda"):
        mlir.register_lowering(primitive, partial(lowered, platform), platform=platform)


register_lowering(matmul_p, _lowered)
