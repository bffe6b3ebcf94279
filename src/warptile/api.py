"""matmul: arrays -> Problem -> Plan -> source -> cubin or PTX -> LaunchSpec -> GPU or emulator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

from warptile.arrays import array_view
from warptile.arrays.array_view import ArrayView, is_tracer
from warptile.arrays.batches import batched, launch_indices
from warptile.arrays.epilogue_operands import EpilogueOperands, check_names
from warptile.arrays.jax_arrays import gpu_views
from warptile.arrays.mixtures import refuse_beside_tracers
from warptile.arrays.operands import Product, arrange
from warptile.arrays.options import (
    beta_of,
    flag,
    number,
    refuse_unknown,
    scale_factor,
    tunables,
    whole_number,
)
from warptile.arrays.packed_operands import stored
from warptile.arrays.reductions import reduced
from warptile.epilogue.epilogue_program import Program
from warptile.epilogue.fused_epilogue import Fused, Layout, Partials
from warptile.epilogue.identity import identity
from warptile.epilogue.tracing import trace
from warptile.errors import ArgumentTypeError, EpilogueError, LayoutError, ShapeError, UnsupportedError
from warptile.gated_call import GatedPlan, gated_epilogue, gated_plan, gated_product, remembered_gate
from warptile.packed_call import (
    NOTHING_BESIDE,
    PACKED,
    PACKED_LEFT,
    Stored,
    joins_rows,
    refuse_gradients,
    stored_as,
)
from warptile.planning.addend import Addend, Nothing
from warptile.planning.plan import Plan, illegal, is_faster_apart, takes_column_major_a
from warptile.problem import Operand, Problem
from warptile.rungs import rung as rung_named
from warptile.rungs.kernel_spec import scale_value
from warptile.runtime import execute
from warptile.runtime.execute import Backend, GpuBackend, choose_backend, find_planned, planned, serving
from warptile.scaled_call import (
    ScaledPlan,
    is_array,
    known_epilogue,
    read_on_host,
    scaled_call,
    stated,
)
from warptile.torch_route import (
    SAID,
    fused_in_torch,
    matmul_in_torch,
    shown_to_dynamo,
    torch_sees,
    traced_matmul,
    traced_plan,
)

if TYPE_CHECKING:
    from warptile.runtime.call_cache import CallCache
    from warptile.runtime.online_tuning import OnlineTuning


OPTIONS = (
    "alpha", "beta", "out_dtype", "accumulate", "precision", "epilogue", "scale_a", "scale_b", "rung", "config",
    "max_sms", "backend", "batch_invariant",
)  # fmt: skip
"""Keywords of `matmul` that are no arrays, in the order of the tuple that its calls are found by."""


_UNSAID = {"alpha": 1, "batch_invariant": False}


def options_of(**given: Any) -> tuple[Any, ...]:
    """The tuple that a call of `matmul` with these keywords is found by; what is not given is as by default."""
    return tuple(given.get(name, _UNSAID.get(name)) for name in OPTIONS)


def said_of(**given: Any) -> tuple[Any, ...]:
    """The same of a call with an epilogue, which is found by its identity and operands too."""
    return tuple(given.get(name, _UNSAID.get(name)) for name in SAID)


def bound_calls(kind: type) -> CallCache | None:
    """Bound calls on arrays of a type; None where there are none yet."""
    return _calls.get(kind)


def matmul(
    a: Any,
    b: Any,
    /,
    c: Any = None,
    *,
    alpha: float = 1,
    beta: float | None = None,
    out: Any = None,
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
    """``alpha * a @ b + beta * c``, as an array of the same kind as ``a``.

    Shapes follow NumPy's ``matmul``. Any of M, N and K may be 0: where K is 0 the result is ``beta * c`` (or zeros),
    and where the result has no element nothing is launched.

    Gradients of torch tensors are recorded, unless ``out`` is given; `torch.compile`, autocast and ``torch.func`` see
    the call as one operator (`warptile.torch`).

    On a GPU, a kernel that has to be compiled is compiled in the background while another one serves; the last bits of
    results may change when it takes over. ``WARPTILE_COMPILE=wait`` in the environment, a ``rung``, or a held
    `warptile.plan` waits for it.

    Args:
        a: (..., M, K) or (K,): NumPy, torch, CuPy or JAX, any strides; float16, bfloat16,
            float32, float64, float8 (e4m3fn or e5m2), int8 or uint8. Or 2:4 weights (M, K): `warptile.sparsify`.
        b: (..., K, N) or (K,), of the same type and in the same place. In functions that JAX transforms:
            `warptile.jax.matmul`. Or quantized weights (N, K), of NumPy or torch: `warptile.quantize`; the product is
            then ``a @ b.dequantize().T``, with ``a`` of the type that they are for, and no gradient is recorded. A
            float32 ``a`` or ``b`` may be a `warptile.split` one; no gradient is recorded then either.
        c: broadcastable to the result and of its type; never read when beta is 0. This third argument is added, as in
            ``torch.addmm``; where the result is to be written is said by ``out=``.
        alpha: factor of the product. With 0, as in BLAS, ``a`` and ``b`` are not read: the result is ``beta * c``
            whatever infinities and NaNs they hold.
        beta: factor of ``c``; None is 1 where ``c`` is given.
        out: where to write the result; returned. No two of its elements may share memory.
        out_dtype: type of the result, as a name or a framework's dtype (``"float32"``, ``torch.float32``,
            ``numpy.float32``); by default that of the operands (int32 for 8-bit integers, bfloat16 for float8).
            Floats of 16 and 8 bits give float16, bfloat16 or float32, or 8-bit floats (``"float8_e4m3"``,
            ``"float8_e5m2"``), rounded to the nearest number and at most to the type's largest.
        accumulate: ``"float16"`` to accumulate float16 or float8 operands in float16 instead of float32;
            ``"float32_fast"`` to keep float8 sums as Hopper's tensor cores do; ``"int32_saturating"`` for integers,
            whose sums and result then stop at int32's ends instead of wrapping around. Or a framework's dtype.
        precision: of float32 operands. None: an error no larger than that of float32 multiply-adds, by whatever is
            fastest; ``"ieee"``: these multiply-adds on CUDA cores; ``"tf32"``: tensor cores at 11 significant bits.
        epilogue: a function that is applied to each element of ``alpha * a @ b + beta * c`` before it is rounded to
            the result's type, inside the kernel. Its first parameter is that element, its others are named operands:
            ``epilogue=lambda acc, bias: wt.gelu(acc + bias), bias=bias``. It is called once with symbolic values, which
            know ``+ - * / **``, comparisons, ``&``, ``|``, ``~``, ``abs`` and warptile's functions (`warptile.gelu`,
            `warptile.where`, ...). It may return a tuple: the result and further outputs, such as ``(wt.relu(acc),
            acc)``, or sums, largest or smallest elements of rows, columns or all: ``(acc, abs(acc).max(axis=-1))``.
            With `warptile.halves` or `warptile.pairs` two columns of the product make one of the result. Of integer
            operands the result is then float32 unless ``out_dtype`` or `warptile.cast` says otherwise.
        epilogue_tensors: the epilogue's operands, by the names of its parameters: numbers, or arrays in the place of
            ``a`` that broadcast to the result (a bias of shape (N,) goes along rows, one of shape (M, 1) along
            columns); see also `warptile.per_block`.
        scale_a: scales of an 8-bit ``a``, which the kernel reads where they are arrays in the place of ``a``: a number
            or one element for all of it; (M,) or (..., M, 1), one for each row; (..., M, ceil(K / 128)), one for each
            128 elements of a row along K; or (..., ceil(M / 128), ceil(K / 128)), one for each block of 128 x 128.
            Those along K are for float8, accumulated in float32, and compute capability 9.0. Integers then give
            float32 unless ``out_dtype`` says otherwise.
        scale_b: the same of ``b``: (N,), (..., 1, N), (..., ceil(K / 128), N) or
            (..., ceil(K / 128), ceil(N / 128)).
        scale_d: factor of the result before it is rounded, behind ``c`` and the epilogue: what brings a result of 8
            bits into its type's range. A number, one element, (M, 1) for rows or (N,) for columns. Whoever reads the
            result divides by it: ``scale_a=1 / scale_d``.
        amax: the largest absolute value of the result, before ``scale_d`` and rounding, comes with it, for the scale
            of the next one: the call returns (result, amax), the latter of no axes and in float32 (float64 of float64
            operands). An epilogue's further outputs stand between both.
        rung: name of the kernel to use instead of the best one. Where nothing is multiplied (K or alpha is 0) neither
            it nor ``config`` is used.
        config: that kernel's tunables.
        max_sms: the most SMs that the GEMM may occupy, all if None; the others are left to other streams. A repacking
            pass, for operands whose layout or alignment no kernel takes, occupies all SMs while it runs
            (`MatmulPlan.explain` names such operands).
        backend: ``"gpu"``, ``"emulator"``, or None for a GPU if there is one.
        batch_invariant: an element of the result has the same bits however many rows of ``a`` come with its own, in
            whichever place: K is never split among CTAs, so that the bits follow from the row of ``a``, the column of
            ``b``, the types and what is said here. See docs/batch-invariance.md; sums over rows or columns that an
            epilogue asks for are not covered.

    Returns:
        ``out`` if it was given, else a new array of the framework and in the place of ``a``. Of two 1-D operands a
        scalar: NumPy's for NumPy, an array without axes for the others. A tuple of outputs where the epilogue returns
        one; ``out`` is then a tuple too.

    Raises:
        ArgumentError: an option whose value is never legal, such as ``max_sms=0``.
        ArgumentTypeError: an option of the wrong Python type, or one that there is not.
        ShapeError: shapes that do not multiply or broadcast, or beta without ``c``.
        DTypeError: element types that no kernel takes together.
        LayoutError: arrays of different frameworks or in different places, or an ``out`` that cannot be written.
        EpilogueError: an epilogue that cannot be fused; the message has the line of the function.
        UnsupportedError: a rung, configuration or option that does not take this problem; ``max_sms`` with problems
            whose kernels have a block for each tile and more tiles.
        NoDeviceError: ``backend="gpu"`` without a GPU.
    """
    scaled, calls = scale_d is not None or amax is not False, _calls.get(a.__class__)
    if scale_a is not None or scale_b is not None:
        scale_a, scale_b = read_on_host(scale_a, "scale_a"), read_on_host(scale_b, "scale_b")
        scaled = scaled or is_array(scale_a) or is_array(scale_b)
    said = (
        alpha, beta, scale_a, scale_b, out_dtype, accumulate, precision, rung, config, max_sms, backend,
        batch_invariant,
    )  # fmt: skip
    known = None if epilogue is None or scaled else identity(epilogue)
    if calls is not None and known is not None:
        found = calls.repeat_fused((a, b, c, out), said, known, epilogue_tensors)
        if found is not None:
            return found
    options: tuple[Any, ...] = (
        alpha, beta, out_dtype, accumulate, precision, epilogue, scale_a, scale_b, rung, config, max_sms, backend,
        batch_invariant,
    )  # fmt: skip
    packed = b.__class__ in PACKED
    plain = epilogue is None and not scaled and not epilogue_tensors
    if calls is not None and plain and not packed:
        found = calls.repeat(a, b, c, out, options)
        if found is not None:
            return found
    memory = Stored((a, b, c, out))
    if packed or a.__class__ in PACKED_LEFT:
        memory, packed = stored_as(a, b, c, out), packed or a.__class__ in PACKED
        options = (*options, *memory.key)
        found = _repeated_packed(memory, options) if plain else None
        if found is not None:
            return found
    if scale_a is not None or scale_b is not None or scaled:
        found = _scaled((a, b, c, out), said, epilogue, epilogue_tensors, (scale_d, amax), memory)
        if found is not None:
            return found
    if packed:
        refuse_gradients(a, b, c, out, epilogue_tensors.values())
    if epilogue is not None:
        return _fused((a, b, c, out), said, epilogue, known, epilogue_tensors, memory)
    refuse_unknown("matmul", _keywords(matmul), epilogue_tensors)
    if packed:
        if joins_rows(a, c, out):  # of all matrices in one GEMM
            rows = a.reshape((prod(a.shape[:-1]), a.shape[-1]))
            joined = matmul(rows, b, c, **dict(zip(SAID, said, strict=True)))
            return joined.reshape((*a.shape[:-1], joined.shape[-1]))
        return _matmul(memory.arrays, (a, b, c), options, said, memory.beside)
    if torch_sees(a, b, c, out):
        return matmul_in_torch(a, b, c, out, options)
    if any(map(is_tracer, (a, b, c, out))):
        from warptile.jax.traced_matmul import matmul as traced  # imports JAX

        refuse_beside_tracers((a, b, c), out, {})
        return traced(
            a, b, c, alpha=alpha, beta=beta, out_dtype=out_dtype, accumulate=accumulate, precision=precision,
            scale_a=scale_a, scale_b=scale_b, rung=rung, config=config, max_sms=max_sms, backend=backend,
            batch_invariant=batch_invariant,
        )  # fmt: skip
    on_gpu = gpu_views(a, b, c, backend) if out is None else None
    if on_gpu is not None:
        found = _matmul(memory.arrays, on_gpu, options, said, through_host=False)
        if found is not None:
            return found
    return _matmul(memory.arrays, (a, b, c), options, said, memory.beside)


shown_to_dynamo(matmul, traced_matmul)


def _scaled(
    arrays: tuple[Any, Any, Any, Any],
    said: tuple[Any, ...],
    epilogue: Callable[..., Any] | None,
    operands: Mapping[str, Any],
    result: tuple[Any, Any],
    memory: Stored,
) -> Any:
    """A call of `matmul` with scales, or whose result has one or comes with its largest absolute value: bound, or
    restated as one with an epilogue. None where its scales are numbers that alpha takes.

    Args:
        arrays: A, B, C and ``out`` as given.
        said: other arguments, in the order of `SAID`.
        epilogue, operands: as given.
        result: ``scale_d`` and ``amax``.
        memory: the arrays in memory.
    """
    a, b, c, out = arrays
    given = stated(memory, said, epilogue, operands, result)
    calls = _calls.get(memory.arrays[0].__class__)
    if calls is not None and given is not None:
        found = calls.repeat_fused(*given)
        if found is not None:
            return found
    options = dict(zip(SAID, said, strict=True))
    scales = options["scale_a"], options["scale_b"]
    call = scaled_call(a, b, c, options.pop("beta"), scales, operands, result)
    if call is None:
        return None
    options |= {"scale_a": call.scale_a, "scale_b": call.scale_b}
    made = known_epilogue(call, epilogue, "matmul", _keywords(matmul))
    found = matmul(a, b, out=out, epilogue=made, **options, **call.operands)
    calls = _calls.get(memory.arrays[0].__class__)
    if calls is not None and given is not None:
        at_a, at_b, _, _ = memory.arrays
        restated = (*said_of(**options), *memory.key), identity(made), {**call.operands, **memory.beside}
        calls.learn_restated(given, ((at_a, at_b, None, out), *restated))
    return found


def _fused(
    arrays: tuple[Any, Any, Any, Any],
    said: tuple[Any, ...],
    epilogue: Callable[..., Any],
    known: Hashable | None,
    operands: Mapping[str, Any],
    memory: Stored,
) -> Any:
    """A call of `matmul` with an epilogue that is not bound yet, or has packed operands; ``known`` is the epilogue's
    identity."""
    a, b, c, out = arrays
    found_by = (*said, *memory.key), known, {**operands, **memory.beside}
    calls = _calls.get(memory.arrays[0].__class__) if memory.key else None
    if calls is not None and known is not None:
        found = calls.repeat_fused(memory.arrays, *found_by)
        if found is not None:
            return found
    options = dict(zip(SAID, said, strict=True))
    gated = remembered_gate(known, operands)
    if gated is None:
        check_names("matmul", _keywords(matmul), epilogue, operands)
        gated = gated_epilogue(epilogue, known, operands)
    if gated is not None:
        return gated_product(matmul, arrays, options, gated, operands)
    traced = any(map(is_tracer, (a, b, c, out, *operands.values())))
    seen = torch_sees(a, b, c, out, operands.values())
    if traced or (out is None and gpu_views(a, b, c, options["backend"]) is not None):
        from warptile.jax.traced_matmul import matmul as in_program  # imports JAX

        refuse_beside_tracers((a, b, c), out, operands)
        return in_program(a, b, c, epilogue=epilogue, **options, **operands)
    if seen:
        if out is not None:
            raise UnsupportedError(
                "out: a call that torch records or transforms makes its own outputs; leave out= away"
            )
        return fused_in_torch(a, b, c, options, epilogue, operands)
    program = trace(epilogue, operands)
    call = _Call.checked(a, c, *said)
    product = call.arranged(a, b, c, out, program=program, operands=operands)
    chosen, _ = _planned(product, call)
    if known is not None:
        _learned_fused(_calls, memory.arrays, found_by, product, chosen, call)
    return _run(chosen, product, call)


def _repeated_packed(memory: Stored, options: tuple[Any, ...]) -> Any:
    """A bound call of `matmul` on packed operands, without an epilogue; None where it is not bound."""
    calls = _calls.get(memory.arrays[0].__class__)
    if calls is None:
        return None
    if memory.beside:
        return calls.repeat_fused(memory.arrays, options, None, memory.beside)
    return calls.repeat(*memory.arrays, options)


def _matmul(
    arrays: tuple[Any, Any, Any, Any],
    read: tuple[Any, Any, Any],
    options: tuple[Any, ...],
    said: tuple[Any, ...],
    beside: Mapping[str, Any] = NOTHING_BESIDE,
    *,
    through_host: bool = True,
) -> Any:
    """A call of `matmul` that is not bound yet.

    Args:
        arrays: A, B, C and ``out`` as they are in memory.
        read: A, B and C as given, or views of them in GPU memory.
        options: what a bound call is found by.
        said: the arguments of `_Call.checked` behind the arrays.
        beside: further operands in memory.
        through_host: arrays of JAX may be copied to the host and back. Without, where they would have to be, the result
            is None.
    """
    a, b, c = read
    out = arrays[3]
    call = _Call.checked(a, c, *said)
    product = call.arranged(a, b, c, out, copy=through_host)
    chosen, _ = _planned(product, call)
    until, tuning, found = None, None, None
    if isinstance(chosen, Plan) and isinstance(call.backend, GpuBackend) and call.rung is None:
        from warptile.runtime.online_tuning import tuning_of  # not before there is a GPU

        chosen, tuning = tuning_of(chosen, product, call.backend)
        chosen, until = serving(chosen, captured=call.backend.is_captured(product.like.stream))
    try:
        if beside:
            if until is None:
                _learned_fused(_calls, arrays, (options, None, beside), product, chosen, call)
        else:
            found = _learned(_calls, arrays, options, product, chosen, call, until=until, tuning=tuning)
        return _run(chosen, product, call) if found is None and through_host else found
    finally:
        if until is not None:
            execute.KERNELS.begin()
        elif tuning is not None and found is not None:
            tuning.begin()


def plan(
    a: Any,
    b: Any,
    /,
    c: Any = None,
    *,
    alpha: float = 1,
    beta: float | None = None,
    out: Any = None,
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
) -> MatmulPlan | GatedPlan | ScaledPlan:
    """How `matmul` would multiply these arrays, as a plan that explains itself and can be called again and again.

    Nothing is computed, copied or allocated: of ``a``, ``b``, ``c`` and ``out`` only types, layouts and addresses are
    looked at.

    Args:
        a, b, c, alpha, beta, out, out_dtype, accumulate, precision, epilogue, epilogue_tensors: as of `matmul`.
        scale_a, scale_b, scale_d, amax, rung, config, max_sms, backend, batch_invariant: as of `matmul`.

    Returns:
        The plan, for these arrays and for others of the same shapes, types and layouts.

    Raises:
        WarptileError: as `matmul`.
    """
    scaled = scaled_call(a, b, c, beta, (scale_a, scale_b), epilogue_tensors, (scale_d, amax))
    if scaled is not None:
        made = plan(
            a, b, out=out, alpha=alpha, out_dtype=out_dtype, accumulate=accumulate, precision=precision,
            epilogue=known_epilogue(scaled, epilogue, "plan", _keywords(matmul)), scale_a=scaled.scale_a,
            scale_b=scaled.scale_b, rung=rung, config=config, max_sms=max_sms, backend=backend,
            batch_invariant=batch_invariant, **scaled.operands,
        )  # fmt: skip
        return ScaledPlan(made, scaled.kinds, beta_of(beta, c))
    program = None
    if epilogue is None:
        refuse_unknown("plan", _keywords(matmul), epilogue_tensors)
    else:
        check_names("plan", _keywords(matmul), epilogue, epilogue_tensors)
        gated = gated_epilogue(epilogue, identity(epilogue), epilogue_tensors)
        if gated is not None:
            said = (
                alpha, beta, scale_a, scale_b, out_dtype, accumulate, precision, rung, config, max_sms, backend,
                batch_invariant,
            )  # fmt: skip
            return gated_plan(plan, (a, b, c, out), dict(zip(SAID, said, strict=True)), gated, epilogue_tensors)
        program = trace(epilogue, epilogue_tensors)
    on_gpu = gpu_views(a, b, c, backend) if out is None and program is None else None
    if on_gpu is not None:
        a, b, c = on_gpu
    call = _Call.checked(
        a, c, alpha, beta, scale_a, scale_b, out_dtype, accumulate, precision, rung, config, max_sms, backend,
        batch_invariant,
    )  # fmt: skip
    product = call.arranged(a, b, c, out, copy=False, program=program, operands=epilogue_tensors)
    chosen, apart = _planned(product, call)
    return MatmulPlan(chosen, product.batch, product.copies, call, apart, program)


@lru_cache
def _keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names that a function's arguments can be given by."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(name for name, each in inspect.signature(function).parameters.items() if each.kind in kinds)


@dataclass(frozen=True)
class _Call:
    """What a caller says beside the arrays, checked.

    Attributes:
        alpha: factor of the product, with the scales of float8 operands in it.
        beta: factor of C.
        beta_given: it was given; else it follows from whether there is a C.
        out_dtype, accumulate, precision, rung, max_sms, batch_invariant: as given.
        config: names and whole numbers, or None.
        backend: where it runs.
    """

    alpha: float
    beta: float
    beta_given: bool
    out_dtype: Any
    accumulate: Any
    precision: str | None
    rung: str | None
    config: dict[str, int] | None
    max_sms: int | None
    backend: Backend
    batch_invariant: bool

    @staticmethod
    def checked(
        a: Any, c: Any, alpha: Any, beta: Any, scale_a: Any, scale_b: Any, out_dtype: Any, accumulate: Any,
        precision: Any, rung: Any, config: Any, max_sms: Any, backend: Any, batch_invariant: Any,
    ) -> _Call:  # fmt: skip
        """The arguments of `matmul`, each in one form. What depends on other operands is checked by `arrange`."""
        left = stored(a)
        scale = scale_factor(scale_a, "scale_a", left) * scale_factor(scale_b, "scale_b", left)
        if rung is not None:
            rung_named(rung)
        return _Call(
            number(alpha, "alpha") * scale, beta_of(beta, c), beta is not None, out_dtype, accumulate, precision, rung,
            tunables(config, rung), whole_number(max_sms, "max_sms"), choose_backend(backend, left),
            flag(batch_invariant, "batch_invariant"),
        )  # fmt: skip

    def arranged(
        self, a: Any, b: Any, c: Any, out: Any, *, copy: bool = True, program: Program | None = None,
        operands: Mapping[str, Any] | None = None,
    ) -> Product:  # fmt: skip
        """The operands in layouts that the rung takes, or the one that the plan will choose."""
        product = arrange(
            a, b, c, out, alpha=self.alpha, beta=self.beta, out_dtype=self.out_dtype, accumulate=self.accumulate,
            precision=self.precision, copy=copy, program=program, operands=operands,
        )  # fmt: skip
        if self.batch_invariant:
            product = replace(product, problem=replace(product.problem, batch_invariant=True))
        problem = product.problem
        if problem.a.major == "row" or takes_column_major_a(problem, self.rung, self.backend.device):
            return product
        return product.with_row_major_a(copy=copy)


@dataclass(frozen=True, eq=False)
class MatmulPlan:
    """A chosen kernel for arrays of one shape, type and layout. A plan equals no other one.

    Attributes:
        plan: problem, rung, configuration, prediction and what was rejected. An `Addend` where nothing is multiplied
            (K or alpha is 0), `Nothing` where the result has no element.
        batch: leading axes of the result.
        copies: what has to be copied before a launch, and why.
        call: factors, types and backend.
        apart: why one launch does not take the whole batch; None where it does.
        program: the epilogue, or None.
        calls: what calls of the plan have bound, by the type of ``a``.
    """

    plan: Plan | Addend | Nothing
    batch: tuple[int, ...]
    copies: tuple[str, ...]
    call: _Call
    apart: str | None = None
    program: Program | None = None
    calls: dict[type, CallCache] = field(default_factory=dict, compare=False, repr=False)

    @property
    def backend(self) -> Backend:
        """Where it runs."""
        return self.call.backend

    @property
    def alpha(self) -> float:
        """Factor of the product, with the scales of float8 operands in it."""
        return self.call.alpha

    @property
    def beta(self) -> float:
        """Factor of C."""
        return self.call.beta

    def explain(self) -> str:
        """The kernel, why it was chosen, what bounds it, what was rejected, and what is copied.

        Returns:
            Lines of text.
        """
        lines = [self.plan.explain(), f"backend    {self.backend.name}, {self.backend.arch}"]
        if self.batch and not isinstance(self.plan, Nothing):
            count = self.plan.problem.batch
            each = "each matrix" if count == 1 else f"every {count} matrices"
            launches = "one launch for all" if self.apart is None else f"one launch for {each}: {self.apart}"
            lines.append(f"batch      {self.batch}: {launches}")
        lines += [f"copy       {sentence}" for sentence in self.copies]
        return "\n".join(lines)

    def __repr__(self) -> str:
        rung = f", by {self.plan.rung.name}" if isinstance(self.plan, Plan) else ""
        return f"<plan of {self.plan.explain().splitlines()[0]}{rung}; print(plan.explain()) says why>"

    def __call__(self, a: Any, b: Any, /, c: Any = None, *, out: Any = None, **epilogue_tensors: Any) -> Any:
        """Multiply arrays like those that the plan was made for.

        Args:
            a, b, c, out, epilogue_tensors: as of `matmul`; alpha, beta and all else are the plan's.

        Returns:
            As `matmul`.

        Raises:
            ShapeError: another shape or type than the plan's, or a ``c`` for a plan that was made without.
            LayoutError: another layout, or memory aligned less than the plan's kernel needs.
        """
        calls = self.calls.get(a.__class__)
        if calls is not None and not epilogue_tensors:
            found = calls.repeat(a, b, c, out, ())
            if found is not None:
                return found
        packed = b.__class__ in PACKED or a.__class__ in PACKED_LEFT
        memory = stored_as(a, b, c, out) if packed else Stored((a, b, c, out))
        calls, beside = self.calls.get(memory.arrays[0].__class__), {**epilogue_tensors, **memory.beside}
        if calls is not None and (beside or self.program is not None):
            found = calls.repeat_fused(memory.arrays, memory.key, None, beside)
            if found is not None:
                return found
        elif calls is not None and packed:
            found = calls.repeat(*memory.arrays, memory.key)
            if found is not None:
                return found
        if c is not None and self.beta == 0 and not self.call.beta_given:
            raise ShapeError(
                "c: this plan was made without it and would not read it; make another: warptile.plan(a, b, c)"
            )
        names = [] if self.program is None else self.program.operands
        unknown = {name: 0 for name in epilogue_tensors if name not in names}
        for name in unknown:
            if name in OPTIONS:
                raise ArgumentTypeError(f"{name}: it is fixed when a plan is made: warptile.plan(a, b, {name}=...)")
        refuse_unknown("plan", (*names, "out"), unknown)
        missing = [name for name in names if name not in epilogue_tensors]
        if missing:
            raise EpilogueError(f"epilogue: it takes {missing[0]!r}, which was not given: give {missing[0]}=...")
        on_gpu = gpu_views(a, b, c, self.backend.name) if out is None and self.program is None else None
        if on_gpu is not None:
            found = self._called(memory, on_gpu, {}, through_host=False)
            if found is not None:
                return found
        return self._called(memory, (a, b, c), epilogue_tensors)

    def _called(
        self,
        memory: Stored,
        read: tuple[Any, Any, Any],
        operands: Mapping[str, Any],
        *,
        through_host: bool = True,
    ) -> Any:
        """A call that is not bound yet.

        Args:
            memory: the arrays in memory.
            read, through_host: as of `_matmul`.
            operands: the epilogue's.

        Returns:
            As `_matmul`.
        """
        arrays, beside = memory.arrays, {**operands, **memory.beside}
        product = self._fixed.arranged(*read, arrays[3], copy=through_host, program=self.program, operands=operands)
        given = product.problem
        if isinstance(self.plan, Nothing) and product.batch != self.batch:
            raise ShapeError(
                f"this plan is for a batch of {self.batch} and the arrays are one of {product.batch}; "
                f"make another with warptile.plan(a, b)"
            )
        if self.plan.problem.batch > 1:
            given, apart = batched(product)
            if apart is not None and given.batch != self.plan.problem.batch:
                raise LayoutError(
                    f"this plan is for a batch of {self.plan.problem.batch} in one launch, and {apart}; "
                    f"make another with warptile.plan(a, b)"
                )
        _check_fits(self.plan.problem, given)
        found = None
        if self.program is None and not beside:
            found = _learned(self.calls, arrays, memory.key, product, self.plan, self.call, of_plan=True)
        else:
            _learned_fused(self.calls, arrays, (memory.key, None, beside), product, self.plan, self.call, of_plan=True)
        return _run(self.plan, product, self.call) if found is None and through_host else found

    @property
    def _fixed(self) -> _Call:
        """The call with the rung that was chosen."""
        return replace(self.call, rung=self.plan.rung.name) if isinstance(self.plan, Plan) else self.call


shown_to_dynamo(MatmulPlan.__call__, traced_plan)


def _planned(product: Product, call: _Call) -> tuple[Plan | Addend | Nothing, str | None]:
    """The plan for the whole batch, or the one for a part of it, and why the batch is not one launch."""
    for name, factor in (("alpha", call.alpha), ("beta", call.beta)):
        scale_value(name, factor, product.problem.accumulator)
    if product.empty:
        return Nothing(product.problem, product.result_shape), None
    problem, apart = batched(product)
    if not product.reads_operands:
        return Addend(problem, call.backend.device.occupying(call.max_sms)), apart
    made = partial(planned, backend=call.backend, rung=call.rung, config=call.config, max_sms=call.max_sms)
    if problem.batch == 1:
        return made(problem), apart
    try:
        found = find_planned(problem, call.backend, rung=call.rung, config=call.config, max_sms=call.max_sms)
    except UnsupportedError:  # the configuration that was given takes no batch, or nothing
        found = None
    if found is not None and (call.rung is not None or found.rung.family != "simt"):
        return found, apart
    single = made(product.problem)
    if found is not None:  # on CUDA cores: before Ampere tensor cores take one matrix at a time
        if not is_faster_apart(found, single):
            return found, apart
        return single, f"{single.rung.name} takes one matrix at a time, and is predicted to be faster"
    reason = illegal(single.rung, problem, single.config, single.device)
    return single, reason or f"{single.rung.name} takes one matrix at a time"


_calls: dict[type, CallCache] = {}
"""Calls of `matmul` that are bound, by the type of ``a``."""


def _learned(
    calls: dict[type, CallCache],
    arrays: tuple[Any, Any, Any, Any],
    options: tuple[Any, ...],
    product: Product,
    chosen: Plan | Addend | Nothing,
    call: _Call,
    *,
    of_plan: bool = False,
    until: Future[Any] | None = None,
    tuning: OnlineTuning | None = None,
) -> Any:
    """Bind a call, ``until`` a better kernel is compiled, and make it; the result, or None where it cannot be bound."""
    backend = call.backend
    if not isinstance(backend, GpuBackend) or isinstance(chosen, Nothing):
        return None
    known = _cache_of(calls, type(arrays[0]), product, of_plan=of_plan)
    if known is None or not known.learn(
        arrays, options, product, chosen, backend, call.alpha, call.beta, until, tuning
    ):
        return None
    return known.repeat(*arrays, options)


def _learned_fused(
    calls: dict[type, CallCache],
    arrays: tuple[Any, Any, Any, Any],
    found_by: tuple[tuple[Any, ...], Hashable, Mapping[str, Any]],
    product: Product,
    chosen: Plan | Addend | Nothing,
    call: _Call,
    *,
    of_plan: bool = False,
) -> None:
    """Bind a call with further operands, if it can be; ``found_by``: its options, the identity of its epilogue, and
    these operands."""
    backend = call.backend
    if isinstance(backend, GpuBackend) and not isinstance(chosen, Nothing):
        known = _cache_of(calls, type(arrays[0]), product, of_plan=of_plan)
        if known is not None:
            known.learn_fused(arrays, *found_by, product, chosen, backend, call.alpha, call.beta)


def _cache_of(calls: dict[type, CallCache], kind: type, product: Product, *, of_plan: bool) -> CallCache | None:
    """Bound calls on arrays of a type, or None where those of its framework cannot be bound."""
    if kind not in calls:
        from warptile.runtime.caches import new_cache  # not before there is a GPU

        made = new_cache(product.like, of_plan=of_plan)
        if made is None:
            return None
        calls[kind] = made
    return calls[kind]


def _run(chosen: Plan | Addend | Nothing, product: Product, call: _Call) -> Any:
    """Launch ``chosen`` for each matrix of the batch, or for all, and hand back what the caller expects."""
    out = product.out
    direct = product.target is not None and out is not None
    result = out if direct else array_view.empty(product.like, product.result_shape, product.problem.d.dtype)
    assert result is not None
    fused = product.epilogue
    further: tuple[ArrayView, ...] = ()
    if fused is not None:
        further = fused.given or _made_outputs(chosen, product, fused)
    if not isinstance(chosen, Nothing):
        operands = {"D": product.target or product.as_matrices(result)}
        if fused is not None:
            operands |= fused.named(
                further
                if fused.given
                else tuple(
                    product.as_matrices(each) if how is None else each
                    for each, how in zip(further, fused.reductions, strict=True)
                )
            )
        if product.reads_operands:
            operands |= {"A": product.a, "B": product.b}
        if product.c is not None:
            operands["C"] = product.c
        if product.metadata is not None:
            operands["E"] = product.metadata
        indices, numbers = launch_indices(product, chosen.problem), fused.numbers if fused else {}
        call.backend.run(chosen, operands, indices, call.alpha, call.beta, numbers)
    if out is None:
        first = array_view.returned(result, product.like)
    else:
        if not direct:
            array_view.assign(out, result)
        first = out.given
    if fused is None or not further:
        return first
    if fused.given:
        return (first, *(each.given for each in further))
    made = [array_view.returned(each, product.like) for each in further]
    hows = fused.reductions
    return (first, *(each if how is None else reduced(each, how) for each, how in zip(made, hows, strict=True)))


def _made_outputs(chosen: Plan | Addend | Nothing, product: Product, fused: EpilogueOperands) -> tuple[ArrayView, ...]:
    """Memory for the outputs of an epilogue after D; of reductions for their partials."""
    seen = None if isinstance(chosen, Nothing) else chosen.kernel.view.problem.epilogue
    shapes = fused.shapes(product.result_shape, product.batch, product.problem.m, product.problem.n, seen)
    return tuple(array_view.empty(product.like, shape, dtype) for shape, dtype in zip(shapes, fused.types, strict=True))


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
    made = (made_for.a, made_for.b, made_for.c, made_for.d)
    pairs = zip(("a", "b", "c", "out"), made, (given.a, given.b, given.c, given.d), strict=True)
    for name, wanted, operand in pairs:
        if not _operand_fits(wanted, operand):
            raise LayoutError(
                f"{name}: this plan is for {wanted}, and it is {operand}; make another with warptile.plan(a, b)"
            )

    if not _epilogue_fits(made_for.epilogue, given.epilogue):
        raise LayoutError(
            "epilogue: operands of another type or layout than the plan's; make another with warptile.plan(a, b, ...)"
        )


def _epilogue_fits(planned: Fused | None, given: Fused | None) -> bool:
    if planned is None or given is None:
        return planned is given
    if planned.layouts.keys() != given.layouts.keys() or len(planned.outputs) != len(given.outputs):
        return False
    pairs = [(each, given.layouts[name]) for name, each in planned.tensors]
    return planned.program == given.program and all(
        _matrix_fits(one, other) for one, other in (*pairs, *zip(planned.outputs, given.outputs, strict=True))
    )


def _matrix_fits(planned: Layout | Partials, given: Layout | Partials) -> bool:
    if not isinstance(planned, Layout) or not isinstance(given, Layout):
        return planned == given
    alignment = planned.alignment_bytes
    return given.alignment_bytes >= alignment and replace(given, alignment_bytes=alignment) == planned


def _operand_fits(planned: Operand | None, operand: Operand | None) -> bool:
    if planned is None or operand is None:
        return planned is operand
    return (
        operand.alignment_bytes >= planned.alignment_bytes
        and replace(operand, alignment_bytes=planned.alignment_bytes) == planned
    )
