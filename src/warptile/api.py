"""matmul: arrays -> Problem -> Plan -> source -> cubin or PTX -> LaunchSpec -> GPU or emulator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from warptile.arrays.array_view import is_tracer
from warptile.arrays.epilogue_operands import check_names
from warptile.arrays.jax_arrays import gpu_views
from warptile.arrays.mixtures import refuse_beside_tracers
from warptile.arrays.options import fixed, refuse_unknown
from warptile.calls.binding import bind, bind_fused
from warptile.calls.call_options import CallOptions, said_of
from warptile.calls.chosen_kernel import chosen_kernel
from warptile.calls.gated_call import gated_epilogue, gated_plan, gated_product, remembered_gate
from warptile.calls.matmul_plan import GemmPlan, MatmulPlan
from warptile.calls.packed_call import (
    NOTHING_BESIDE,
    PACKED,
    PACKED_LEFT,
    Stored,
    joins_rows,
    refuse_gradients,
    stored_as,
)
from warptile.calls.running import run
from warptile.calls.scaled_call import ScaledPlan, is_array, known_epilogue, read_on_host, scaled_call, stated
from warptile.epilogue.identity import identity
from warptile.epilogue.tracing import trace
from warptile.errors import UnsupportedError
from warptile.planning.plan import Plan
from warptile.runtime import execute
from warptile.runtime.execute import GpuBackend, serving
from warptile.torch_route import (
    SAID,
    fused_in_torch,
    matmul_in_torch,
    shown_to_dynamo,
    torch_sees,
    traced_matmul,
)

if TYPE_CHECKING:
    from warptile.runtime.call_cache import CallCache


_calls: dict[type, CallCache] = {}
"""Calls of `matmul` that are bound, by the type of ``a``."""


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
    if config is not None:
        config = fixed(config)
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
    call = CallOptions.checked(a, c, *said)
    product = call.arranged(a, b, c, out, program=program, operands=operands)
    chosen, _ = chosen_kernel(product, call)
    if known is not None:
        bind_fused(_calls, memory.arrays, found_by, product, chosen, call)
    return run(chosen, product, call)


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
        said: the arguments of `CallOptions.checked` behind the arrays.
        beside: further operands in memory.
        through_host: arrays of JAX may be copied to the host and back. Without, where they would have to be, the result
            is None.
    """
    a, b, c = read
    out = arrays[3]
    call = CallOptions.checked(a, c, *said)
    product = call.arranged(a, b, c, out, copy=through_host)
    chosen, _ = chosen_kernel(product, call)
    until, tuning, found = None, None, None
    if isinstance(chosen, Plan) and isinstance(call.backend, GpuBackend) and call.rung is None:
        from warptile.runtime.online_tuning import tuning_of  # not before there is a GPU

        chosen, tuning = tuning_of(chosen, product, call.backend)
        chosen, until = serving(chosen, captured=call.backend.is_captured(product.like.stream))
    try:
        if beside:
            if until is None:
                bind_fused(_calls, arrays, (options, None, beside), product, chosen, call)
        else:
            found = bind(_calls, arrays, options, product, chosen, call, until=until, tuning=tuning)
        return run(chosen, product, call) if found is None and through_host else found
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
) -> MatmulPlan:
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
        return ScaledPlan.of(made, scaled.kinds, beta, c)
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
    call = CallOptions.checked(
        a, c, alpha, beta, scale_a, scale_b, out_dtype, accumulate, precision, rung, config, max_sms, backend,
        batch_invariant,
    )  # fmt: skip
    product = call.arranged(a, b, c, out, copy=False, program=program, operands=epilogue_tensors)
    chosen, apart = chosen_kernel(product, call)
    names = () if program is None else tuple(program.operands)
    return GemmPlan(chosen, product.batch, product.copies, call, apart, program, names)


@lru_cache
def _keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names that a function's arguments can be given by."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(name for name, each in inspect.signature(function).parameters.items() if each.kind in kinds)
