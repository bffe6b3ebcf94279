"""matmul: arrays -> Problem -> Plan -> source -> cubin or PTX -> LaunchSpec -> GPU or emulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from warptile import arch as arches
from warptile import arrays
from warptile.arrays import Shape
from warptile.batches import batched
from warptile.errors import LayoutError, ShapeError, UnsupportedError
from warptile.execute import Backend, choose_backend, planned
from warptile.operands import Product, arrange, scale_factor, stored
from warptile.plan import Plan, a_majors, illegal
from warptile.problem import Operand, Problem


def matmul(
    a: Any,
    b: Any,
    /,
    c: Any = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    out: Any = None,
    out_dtype: str | None = None,
    accumulate: str | None = None,
    precision: str | None = None,
    epilogue: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    rung: str | None = None,
    config: Mapping[str, int] | None = None,
    max_sms: int | None = None,
    backend: str | None = None,
    **epilogue_tensors: Any,
) -> Any:
    """``alpha * a @ b + beta * c``, as an array of the same kind as ``a``.

    Args:
        a: (..., M, K) or (K,): NumPy, torch, CuPy or JAX, any strides; float16, bfloat16,
            float32, float64, float8 (e4m3fn or e5m2), int8 or uint8. Or 2:4 weights (M, K): `warptile.sparsify`.
        b: (..., K, N) or (K,), of the same type and in the same place.
        c: broadcastable to the result and of its type; never read when beta is 0.
        alpha: factor of the product.
        beta: factor of ``c``.
        out: where to write the result; returned.
        out_dtype: type of the result; by default that of the operands (int32 for 8-bit integers, bfloat16 for float8).
            Floats of 16 and 8 bits give ``"float16"``, ``"bfloat16"`` or ``"float32"``.
        accumulate: ``"float16"`` to accumulate float16 or float8 operands in float16 instead of float32,
            ``"int32_saturating"`` for integer sums that stop at int32's ends instead of wrapping around.
        precision: ``"tf32"`` to let float32 operands use tensor cores at 11 significant bits.
        epilogue: not available yet.
        scale_a: factor of a float8 ``a``: a number, or an array of one element in host memory.
        scale_b: the same of ``b``.
        rung: name of the kernel to use instead of the best one.
        config: that kernel's tunables.
        max_sms: the most multiprocessors that the product may take, all if None: others are left to other streams. What
            is copied before it, operands that lie badly, takes all for that time (`MatmulPlan.explain` names them).
        backend: ``"gpu"``, ``"emulator"``, or None for a GPU if there is one.
        **epilogue_tensors: not available yet.

    Raises:
        ShapeError: shapes that do not multiply or broadcast.
        DTypeError: element types that no kernel takes together.
        LayoutError: arrays in different places, or an ``out`` that cannot be written.
        UnsupportedError: a rung, configuration or option that does not take this problem; ``max_sms`` below 1, or with
            problems whose kernels have a block for each tile and more tiles.
        NoDeviceError: ``backend="gpu"`` without a GPU.
    """
    _refuse_what_comes_later(epilogue=epilogue, **epilogue_tensors)
    left = stored(a)
    factor = alpha * scale_factor(scale_a, "scale_a", left) * scale_factor(scale_b, "scale_b", left)
    types = _Types(out_dtype, accumulate, precision)
    executor = choose_backend(backend, left)
    product = _arranged(a, b, c, out, beta, types, rung, executor)
    chosen, _ = _planned(product, executor, rung, config, max_sms)
    return _run(chosen, executor, product, factor, beta)


def plan(
    a: Any,
    b: Any,
    /,
    c: Any = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    out: Any = None,
    out_dtype: str | None = None,
    accumulate: str | None = None,
    precision: str | None = None,
    epilogue: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    rung: str | None = None,
    config: Mapping[str, int] | None = None,
    max_sms: int | None = None,
    backend: str | None = None,
    **epilogue_tensors: Any,
) -> MatmulPlan:
    """How `matmul` would multiply these arrays, as a plan that explains itself and can be called again and again.

    Arguments and errors are those of `matmul`; nothing is computed.
    """
    _refuse_what_comes_later(epilogue=epilogue, **epilogue_tensors)
    left = stored(a)
    factor = alpha * scale_factor(scale_a, "scale_a", left) * scale_factor(scale_b, "scale_b", left)
    types = _Types(out_dtype, accumulate, precision)
    executor = choose_backend(backend, left)
    product = _arranged(a, b, c, out, beta, types, rung, executor)
    chosen, apart = _planned(product, executor, rung, config, max_sms)
    return MatmulPlan(chosen, executor, product.batch, product.copies, factor, beta, types, apart)


@dataclass(frozen=True)
class _Types:
    """What a caller says about types, as given to `matmul`."""

    out_dtype: str | None
    accumulate: str | None
    precision: str | None


@dataclass(frozen=True)
class MatmulPlan:
    """A chosen kernel for arrays of one shape, type and layout.

    Attributes:
        plan: problem, rung, configuration, prediction and what was rejected.
        backend: where it runs.
        batch: leading axes of the result.
        copies: what has to be copied before a launch, and why.
        alpha: factor of the product, with the scales of float8 operands in it.
        beta: factor of C.
        types: what was said about types.
        apart: why each matrix of the batch has a launch of its own; None where one launch takes all.
    """

    plan: Plan
    backend: Backend
    batch: tuple[int, ...]
    copies: tuple[str, ...]
    alpha: float
    beta: float
    types: _Types
    apart: str | None = None

    def explain(self) -> str:
        """The kernel, why it was chosen, what bounds it, what was rejected, and what is copied."""
        lines = [self.plan.explain(), f"backend    {self.backend.name}, {self.backend.arch}"]
        if self.batch:
            launches = "one launch for all" if self.apart is None else f"one launch for each matrix: {self.apart}"
            lines.append(f"batch      {self.batch}: {launches}")
        lines += [f"copy       {sentence}" for sentence in self.copies]
        return "\n".join(lines)

    def __call__(self, a: Any, b: Any, /, c: Any = None, *, out: Any = None) -> Any:
        """Multiply arrays like those that the plan was made for.

        Raises:
            ShapeError: another shape or type than the plan's.
            LayoutError: another layout, or memory aligned less than the plan's kernel needs.
        """
        product = _arranged(a, b, c, out, self.beta, self.types, self.plan.rung.name, self.backend)
        given = product.problem
        if self.plan.problem.batch > 1:
            whole = batched(product)
            if isinstance(whole, str):
                raise LayoutError(
                    f"this plan is for a batch of {self.plan.problem.batch} in one launch, and {whole}; "
                    f"make another with warptile.plan(a, b)"
                )
            given = whole
        _check_fits(self.plan.problem, given)
        return _run(self.plan, self.backend, product, self.alpha, self.beta)


def _arranged(
    a: Any, b: Any, c: Any, out: Any, beta: float, types: _Types, rung: str | None, executor: Backend
) -> Product:
    """The operands in layouts that the rung takes, or the one that the plan will choose."""
    return arrange(
        a, b, c, out, beta=beta, out_dtype=types.out_dtype, accumulate=types.accumulate, precision=types.precision,
        a_majors=partial(a_majors, rung, executor.arch),
    )  # fmt: skip


def _planned(
    product: Product, executor: Backend, rung: str | None, config: Mapping[str, int] | None, max_sms: int | None
) -> tuple[Plan, str | None]:
    """The plan for the whole batch, or the one for each of its matrices and why the batch is not one launch."""
    whole = batched(product)
    if isinstance(whole, str):
        return planned(product.problem, executor, rung=rung, config=config, max_sms=max_sms), whole
    try:
        return planned(whole, executor, rung=rung, config=config, max_sms=max_sms), None
    except UnsupportedError as error:
        plan = planned(product.problem, executor, rung=rung, config=config, max_sms=max_sms)
        target = arches.arch(executor.arch)
        return plan, illegal(plan.rung, whole, plan.config, target, max_sms) or str(error)


def _run(chosen: Plan, executor: Backend, product: Product, alpha: float, beta: float) -> Any:
    """Launch ``chosen`` for each matrix of the batch, or for all, and hand back what the caller expects."""
    out = product.out
    direct = product.target is not None and out is not None
    result = out if direct else arrays.empty(product.like, product.result_shape, chosen.problem.d.dtype)
    assert result is not None
    if not product.empty:
        operands = {"A": product.a, "B": product.b, "D": product.target or product.as_matrices(result)}
        if product.c is not None:
            operands["C"] = product.c
        if product.metadata is not None:
            operands["E"] = product.metadata
        first: Shape = ()
        launches = [first] if chosen.problem.batch > 1 else list(product.indices())
        executor.run(chosen, operands, launches, alpha, beta)
    if out is not None and not direct:
        arrays.assign(out, result)
    return arrays.returned(out or result, product.like)


def _refuse_what_comes_later(**options: Any) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise UnsupportedError(
            f"{', '.join(given)}: not available yet; matmul computes alpha * a @ b + beta * c, "
            f"so call matmul(a, b, c, beta=1) and apply the rest to its result"
        )


def _check_fits(made_for: Problem, given: Problem) -> None:
    """Raise unless a kernel made for one problem can run the other: all equal, alignment equal or better."""
    if made_for.batch != given.batch:
        raise ShapeError(
            f"this plan is for a batch of {made_for.batch} and the arrays are one of {given.batch}; "
            f"make another with warptile.plan(a, b)"
        )
    if (made_for.m, made_for.n, made_for.k) != (given.m, given.n, given.k) or made_for.a.dtype != given.a.dtype:
        raise ShapeError(
            f"this plan is for m, n, k = {made_for.m}, {made_for.n}, {made_for.k} of {made_for.a.dtype.name}; "
            f"the arrays are {given.m}, {given.n}, {given.k} of {given.a.dtype.name}: "
            f"make another with warptile.plan(a, b)"
        )
    pairs = zip(
        "abcd", (made_for.a, made_for.b, made_for.c, made_for.d), (given.a, given.b, given.c, given.d), strict=True
    )
    for name, wanted, operand in pairs:
        if not _operand_fits(wanted, operand):
            raise LayoutError(
                f"{name}: this plan is for {wanted}, and it is {operand}; make another with warptile.plan(a, b)"
            )


def _operand_fits(planned: Operand | None, operand: Operand | None) -> bool:
    if planned is None or operand is None:
        return planned is operand
    return (
        operand.alignment_bytes >= planned.alignment_bytes
        and replace(operand, alignment_bytes=planned.alignment_bytes) == planned
    )
