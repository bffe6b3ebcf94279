"""matmul_grouped: GEMMs of groups that follow each other in one operand, in one launch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from warptile.arrays import array_view
from warptile.arrays.array_view import ArrayView, Shape
from warptile.arrays.epilogue_operands import SCALE_OF_A, SCALE_OF_B
from warptile.arrays.operands import destination_of, lies_by_columns, lies_by_rows, require_same_place
from warptile.arrays.options import element_named, tunables, whole_number
from warptile.calls.scaled_call import is_array, read_on_host
from warptile.device import DeviceLimits
from warptile.dtypes import DTYPES, DType
from warptile.errors import DTypeError, ShapeError, UnsupportedError
from warptile.group_scales import NO_SCALES, GroupScales, group_scales
from warptile.planning.grouped_plan import GroupedPlan
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand, alignment_of
from warptile.rungs.wgmma.grouped import ARCH, DTYPES_TAKEN, ENDS, FLOAT8, OUTPUTS, GroupedProblem, lines_follow
from warptile.runtime.execute import Backend, GpuBackend, choose_backend
from warptile.torch_route import grouped_in_torch, shown_to_dynamo, torch_sees, traced_grouped

if TYPE_CHECKING:
    from warptile.runtime.grouped_calls import GroupedCalls

_EXAMPLE = "matmul_grouped(a, b, offsets) with a of shape (T, K), b of shape (G, K, N) and offsets of shape (G,)"

_OFFSETS_NEEDED = "it takes an array of int32 or int64 in the place of a, such as numpy.array([3, 8], 'int32')"

OFFSET_BITS = {"int32": 32, "int64": 64}
"""Element types of offsets."""


def matmul_grouped(
    a: Any,
    b: Any,
    offsets: Any,
    *,
    out: Any = None,
    out_dtype: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    config: Mapping[str, int] | None = None,
    max_sms: int | None = None,
    backend: str | None = None,
) -> Any:
    """Multiplies groups that follow each other, each with an operand of its own, in one launch.

    ======================  ============  ============  =========  ================================================
    groups                  a             b             result     group g is [s, e), s = offsets[g - 1], e = offsets[g]
    ======================  ============  ============  =========  ================================================
    of rows of a            (T, K)        (G, K, N)     (T, N)     ``result[s:e] = a[s:e] @ b[g]``
    along K                 (M, T)        (T, N)        (G, M, N)  ``result[g] = a[:, s:e] @ b[s:e]``
    ======================  ============  ============  =========  ================================================

    The first is a layer of a mixture of experts, whose rows are sorted by expert, and the gradient of its input (with
    ``b`` transposed through its strides); the second is the gradient of its weights. Offsets stay where they are: the
    GPU reads them, nothing waits for it, and the call can be captured in a CUDA graph, which then runs with whatever
    they hold when it is launched.

    Rows of the result behind the last offset are not written: those of a new result hold anything, as torch's do. A
    group may be empty; along K its result is zeros. What lies in other groups or behind the last offset, infinities
    and NaNs too, has no influence on a group.

    Gradients of torch tensors are recorded, unless ``out`` is given: each is a grouped GEMM again, in one launch.

    Args:
        a: NumPy, torch, CuPy or JAX, any strides; float16 or bfloat16, and for groups of rows float8 (e4m3fn or
            e5m2). What the kernel cannot read as it lies is copied first: groups of rows are read with K contiguous,
            groups along K by rows of M and N.
        b: of the same type and in the same place, any strides. Weights that are stored as (G, N, K) are ``w.mT``;
            those of float8 are copied so where they are stored otherwise.
        offsets: (G,), int32 or int64, in the place of ``a``: where each group ends. Each begins where the one before
            ends, the first at 0. Where offsets fall or pass T, they are taken as the nearest that do not.
        out: where to write the result; returned. No two of its elements may share memory.
        out_dtype: bfloat16, float16 or float32, as a name or a framework's dtype; by default that of the operands,
            bfloat16 for float8.
        scale_a: scales of a float8 ``a``, by which its products are multiplied: a number or one element, or one for
            each row, (T,) or (T, 1), or for each 128 elements along K of a row, (T, ceil(K / 128)). The kernel reads
            arrays where they are, in the place of ``a``.
        scale_b: the same of ``b``: a number or one element, one for each group, (G,), one for each column of each
            group, (G, N) or (G, 1, N), or those of blocks along K of each group: (G, ceil(K / 128), N), or of
            128 x 128, (G, ceil(K / 128), ceil(N / 128)).
        config: the kernel's tunables (`warptile.rungs.wgmma.grouped`).
        max_sms: the most SMs that the GEMM may occupy, all if None.
        backend: ``"gpu"``, ``"emulator"``, or None for a GPU if there is one.

    Returns:
        ``out`` if it was given, else a new array of the framework and in the place of ``a``.

    Raises:
        ShapeError: shapes that do not go together.
        DTypeError: element types that do not go together.
        LayoutError: arrays of different frameworks or in different places, or an ``out`` that cannot be written.
        UnsupportedError: another element type, a configuration that the kernel does not have, or a GPU other than
            Hopper's.
        NoDeviceError: ``backend="gpu"`` without a GPU.
    """
    named = None if config is None else tuple((tunables(config, "wgmma-grouped") or {}).items())
    plain, tensors = scale_a is None and scale_b is None, {}
    if not plain:
        scale_a, scale_b = read_on_host(scale_a, "scale_a"), read_on_host(scale_b, "scale_b")
        tensors = {name: each for name, each in ((SCALE_OF_A, scale_a), (SCALE_OF_B, scale_b)) if is_array(each)}
    numbers = [each for each in (scale_a, scale_b) if each is not None and not is_array(each)]
    options = out_dtype, named, max_sms, backend, *numbers
    arrays, bound = (a, b, offsets, out), _bound.get(type(a))
    if bound is not None:
        found = bound.repeat_fused(arrays, options, None, tensors) if tensors else bound.repeat(*arrays, options)
        if found is not None:
            return found
    if (named, max_sms, backend) == (None, None, None) and torch_sees(a, b, None, out):
        if not plain:
            raise UnsupportedError(
                "scale_a, scale_b: a call that torch records or transforms takes none; call it on detached tensors"
            )
        if out is not None:
            raise UnsupportedError("out: a call that torch records or transforms makes its own result; leave out= away")
        return grouped_in_torch(a, b, offsets, out_dtype)
    place = choose_backend(backend, array_view.view(a, "a"))
    arranged = _arrange(a, b, offsets, out, out_dtype, (scale_a, scale_b))
    if arranged.problem is None:
        return _empty_product(arranged)
    device = _hopper(place, arranged).device.occupying(whole_number(max_sms, "max_sms"))
    target = arranged.target or _made(arranged)
    operands = {"A": arranged.a, "B": arranged.b, "D": target, ENDS: arranged.ends, **arranged.scales.operands}
    plan = _plan(arranged.problem, device, named)
    place.run(plan, operands, [()], arranged.scales.factor, 0)
    if isinstance(place, GpuBackend) and arranged.a_given.framework == "torch":
        _calls(type(a)).learn_grouped(arrays, options, plan, place, operands, arranged.scales.factor, tensors)
    if arranged.out is None:
        return array_view.returned(target, arranged.a_given)
    if arranged.target is None:
        array_view.assign(arranged.out, target)
    return arranged.out.given


shown_to_dynamo(matmul_grouped, traced_grouped)


def takes(a: Any, out_dtype: Any) -> bool:
    """Whether `matmul_grouped` takes operands of the type of ``a``, where ``a`` is, with such a result."""
    view, output = array_view.view(a, "a"), element_named(out_dtype, "out_dtype")
    if view.dtype.name not in DTYPES_TAKEN or (output is not None and output.name not in OUTPUTS):
        return False
    return choose_backend(None, view).device.arch == ARCH


_bound: dict[type, GroupedCalls] = {}
"""Calls on torch tensors in GPU memory that are bound, by the type of ``a``."""


def _calls(kind: type) -> GroupedCalls:
    if kind not in _bound:
        from warptile.runtime.grouped_calls import GroupedCalls  # not before there is a GPU

        _bound[kind] = GroupedCalls(sys.modules["torch"], may_change=False)
    return _bound[kind]


@lru_cache(maxsize=1024)
def _plan(problem: GroupedProblem, device: DeviceLimits, config: tuple[tuple[str, int], ...] | None) -> GroupedPlan:
    return GroupedPlan.of(problem, device, config)


def _hopper(place: Backend, arranged: _Arranged) -> Backend:
    if place.device.arch != ARCH:
        group = "a[s:e], b[g]" if arranged.by_rows else "a[:, s:e], b[s:e]"
        raise UnsupportedError(
            f"matmul_grouped: {place.device.name} is {place.device.arch}, and its kernel is for {ARCH} (Hopper); "
            f"multiply one group after the other, such as matmul({group})"
        )
    return place


# --- what the arrays mean --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Arranged:
    """Operands in layouts that the kernel takes.

    Attributes:
        problem: what is computed; None where there is nothing to launch.
        a_given: the caller's ``a``, whose framework makes the result.
        a, b, ends: operands.
        by_rows: groups are of rows.
        result_shape: shape of the result.
        output: its element type.
        out: the caller's ``out``, or None.
        target: ``out`` where the kernel can write there, else None.
        scales: of the operands.
    """

    problem: GroupedProblem | None
    a_given: ArrayView
    a: ArrayView
    b: ArrayView
    ends: ArrayView
    by_rows: bool
    result_shape: Shape
    output: DType
    out: ArrayView | None
    target: ArrayView | None
    scales: GroupScales = NO_SCALES


def _arrange(a: Any, b: Any, offsets: Any, out: Any, out_dtype: Any, scales: tuple[Any, Any]) -> _Arranged:
    left, right = array_view.view(a, "a"), array_view.view(b, "b")
    require_same_place(left, right)
    by_rows, groups, (extent, m, n, k) = _extents(left, right, offsets)
    _check_types(left, right, by_rows=by_rows)
    given = group_scales(left, scales, (extent, n, groups, k))
    ends, offset_bits = _ends(offsets, left)
    result_shape = (extent, n) if by_rows else (groups, m, n)
    output = _output(left, out, out_dtype)
    destination = destination_of(out, left, output, result_shape)
    if 0 in result_shape or 0 in (groups, extent) or (by_rows and k == 0):
        return _Arranged(None, left, left, right, ends, by_rows, result_shape, output, destination, None)

    a_matrix = left if _is_plain(left, rows=by_rows, columns=not by_rows) else _copied(left, columns=not by_rows)
    along_k = left.dtype.is_float8  # 8-bit operands are read along K alone
    b_matrices = right if _is_plain(right, rows=not along_k, columns=by_rows) else _copied(right, columns=along_k)
    operand_b = _operand(b_matrices, groups, columns=along_k)
    lines = k if operand_b.major == "row" else n
    if by_rows and operand_b.alignment_bytes < MAX_ALIGNMENT_BYTES and not lines_follow(operand_b, lines):
        b_matrices = _copied(right, columns=along_k)
        operand_b = _operand(b_matrices, groups, columns=along_k)
    target = _in_place(destination, left, right)
    fresh = array_view.ArrayView("out", None, "", 0, result_shape, array_view.row_major(result_shape), output)
    operand_a, operand_d = _operand(a_matrix, 1, columns=not by_rows), _operand(target or fresh, groups)
    problem = GroupedProblem(
        "rows" if by_rows else "k", groups, extent, m, n, k, operand_a, operand_b, operand_d, offset_bits,
        given.fused,
    )  # fmt: skip
    return _Arranged(
        problem, left, a_matrix, b_matrices, ends, by_rows, result_shape, output, destination, target, given
    )  # fmt: skip


def _extents(a: ArrayView, b: ArrayView, offsets: Any) -> tuple[bool, int, tuple[int, int, int, int]]:
    """Whether groups are of rows, how many there are, and the extents that they divide, of M, N and K."""
    if not hasattr(offsets, "shape"):
        raise DTypeError(f"offsets: got {type(offsets).__name__}; {_OFFSETS_NEEDED}")
    shape = tuple(offsets.shape)
    if a.ndim != 2 or b.ndim not in (2, 3):
        raise ShapeError(
            f"a has shape {a.shape} and b has shape {b.shape}; a needs two axes, and b three (groups of rows) or two "
            f"(groups along K), such as {_EXAMPLE}"
        )
    if a.shape[1] != b.shape[-2]:
        turned = b.ndim == 3 and a.shape[1] == b.shape[-1]
        raise ShapeError(
            f"a has shape {a.shape} and b has shape {b.shape}: the last axis of a ({a.shape[1]}) must equal the second "
            f"last axis of b ({b.shape[-2]}), such as "
            f"{'matmul_grouped(a, b.swapaxes(1, 2), offsets)' if turned else _EXAMPLE}"
        )
    if len(shape) != 1:
        raise ShapeError(
            f"offsets: got shape {shape}; it has one axis, with the end of each group: offsets.reshape(-1)"
        )
    if b.ndim == 3 and shape[0] != b.shape[0]:
        starts = shape[0] == b.shape[0] + 1
        raise ShapeError(
            f"offsets: got {shape[0]} ends and b has {b.shape[0]} groups; it has one for each, such as "
            f"{'offsets[1:], where the first one is 0' if starts else _EXAMPLE}"
        )
    by_rows = b.ndim == 3
    extents = (a.shape[0], 0, b.shape[2], a.shape[1]) if by_rows else (a.shape[1], a.shape[0], b.shape[1], 0)
    return by_rows, shape[0], extents


def _check_types(a: ArrayView, b: ArrayView, *, by_rows: bool) -> None:
    if a.dtype != b.dtype:
        raise DTypeError(
            f"a is {a.dtype.name} and b is {b.dtype.name}; both operands need one type: "
            f"matmul_grouped(a, {array_view.cast('b', b.framework, a.dtype)}, offsets)"
        )
    if a.dtype.is_float8 and not by_rows:
        both = [array_view.cast(each.name, each.framework, DTYPES["bfloat16"]) for each in (a, b)]
        raise UnsupportedError(
            f"a, b: got {a.dtype.name} in groups along K; tensor cores read 8-bit operands along K, which such groups "
            f"divide anywhere: multiply them in 16 bits, such as matmul_grouped({', '.join(both)}, offsets)"
        )
    if a.dtype.name not in (*DTYPES_TAKEN, *FLOAT8):
        converted = array_view.cast("a", a.framework, DTYPES["bfloat16"])
        raise UnsupportedError(
            f"a, b: got {a.dtype.name}; matmul_grouped multiplies {', '.join((*DTYPES_TAKEN, *FLOAT8))}: convert both, "
            f"such as {converted}, or multiply one group after the other with matmul"
        )


def _output(a: ArrayView, out: Any, out_dtype: Any) -> DType:
    asked = element_named(out_dtype, "out_dtype")
    usual = DTYPES["bfloat16"] if a.dtype.is_float8 else a.dtype
    found = asked or (usual if out is None else array_view.view(out, "out").dtype)
    if found.name not in OUTPUTS:
        name = "out" if asked is None else "out_dtype"
        raise DTypeError(f"{name}: got {found.name}; {a.dtype.name} operands give {' or '.join(OUTPUTS)}")
    return found


def _ends(offsets: Any, a: ArrayView) -> tuple[ArrayView, int]:
    """The offsets as 32-bit words, and bits of each."""
    name = str(getattr(offsets, "dtype", type(offsets).__name__)).removeprefix("torch.")
    if name not in OFFSET_BITS:
        raise DTypeError(f"offsets: got {name}; {_OFFSETS_NEEDED}")
    if type(offsets).__module__.partition(".")[0] == "torch":
        words = offsets.detach().contiguous().view(sys.modules["torch"].int32)
    elif hasattr(offsets, "view") and hasattr(offsets, "__cuda_array_interface__"):
        words = offsets.copy().view("int32")
    else:
        words = np.ascontiguousarray(np.asarray(offsets)).view(np.int32)
    found = array_view.view(words, "offsets")
    if a.framework != "jax":
        require_same_place(a, found)
    return found, OFFSET_BITS[name]


# --- layouts ---------------------------------------------------------------------------------------------------------


def _is_plain(matrices: ArrayView, *, rows: bool, columns: bool) -> bool:
    """Whether the kernel can read each matrix by rows, or by columns, as it lies."""
    apart = matrices.ndim == 2 or matrices.shape[0] == 1 or matrices.strides[0] > 0
    readable = (rows and lies_by_rows(matrices)) or (columns and lies_by_columns(matrices))
    return readable and apart and not matrices.negated


def _copied(matrices: ArrayView, *, columns: bool = False) -> ArrayView:
    """A copy without gaps by rows, or by columns."""
    if not columns:
        return array_view.contiguous(matrices)

    def swapped(each: tuple[int, ...]) -> tuple[int, ...]:
        return (*each[:-2], *each[:-3:-1])

    turned = array_view.contiguous(matrices.relaid(swapped(matrices.shape), swapped(matrices.strides)))
    return turned.relaid(matrices.shape, swapped(turned.strides))


def _operand(matrices: ArrayView, groups: int, *, columns: bool = False) -> Operand:
    """Matrices as the kernel sees them: by rows where they can be read so, unless ``columns`` is asked for."""
    major = "col" if columns or not lies_by_rows(matrices) else "row"
    (inner, outer) = matrices.shape[:-3:-1] if major == "row" else matrices.shape[-2:]
    size, leading = matrices.element_bytes, matrices.strides[-2 if major == "row" else -1]
    apart = matrices.ndim == 3 and groups > 1
    if outer == 1:  # how far the next line would be is free
        whole = MAX_ALIGNMENT_BYTES // size
        leading = max(matrices.strides[0], inner) if apart else -(-inner // whole) * whole
    stride = matrices.strides[0] if apart else outer * leading if matrices.ndim == 3 else 0
    aligned = alignment_of(matrices.pointer, leading * size, stride * size)
    return Operand(matrices.dtype, major, leading, aligned, batch_stride=stride)


def _in_place(destination: ArrayView | None, *read: ArrayView) -> ArrayView | None:
    """``out`` where the kernel can write straight into it, else None."""
    if destination is None or destination.negated or not _is_plain(destination, rows=True, columns=False):
        return None
    return None if any(each.overlaps(destination) for each in read) else destination


def _made(arranged: _Arranged) -> ArrayView:
    """New memory for the result; that of rows that will not be written holds what an ``out`` has there."""
    if arranged.out is not None:
        return array_view.contiguous(arranged.out)
    return array_view.empty(arranged.a_given, arranged.result_shape, arranged.output)


def _empty_product(arranged: _Arranged) -> Any:
    """The result where it has no element, or where nothing is multiplied: zeros."""
    result = arranged.out or array_view.empty(arranged.a_given, arranged.result_shape, arranged.output)
    array_view.clear(result)
    return arranged.out.given if arranged.out is not None else array_view.returned(result, arranged.a_given)
