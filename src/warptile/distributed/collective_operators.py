"""``torch.ops.warptile.all_gather_matmul``, ``matmul_reduce_scatter`` and ``matmul_all_reduce``.

Their arguments are those of ``torch.ops.symm_mem.fused_all_gather_matmul`` and ``fused_matmul_reduce_scatter``. The
gradient of the first is one of the second and the other way round:

    A = all-gather(a), d_i = A @ b_i          grad_a = reduce-scatter(sum_i g_i @ b_i.T),  grad_b_i = A.T @ g_i
    d = reduce-scatter(a @ b + c)             G = all-gather(g): grad_a = G @ b.T, grad_b = a.T @ G, grad_c = G
    d = all-reduce(a @ b)                     grad_a = g @ b.T, grad_b = a.T @ g

The last holds where ``g`` is the same on all ranks, as the gradient of a replicated tensor is.
"""

# torch may be missing where types are checked.
# mypy: allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from warptile.api import matmul
from warptile.distributed import collectives, overlapped_gather, overlapped_scatter, shared_sum
from warptile.distributed.agreement import RankCall, Said, agree
from warptile.distributed.process_groups import Group, group_named
from warptile.distributed.rank_calls import (
    GATHER,
    REDUCE,
    SCATTER,
    check_gather,
    check_reduce,
    described,
    gather_signature,
    part_of,
    reduce_signature,
)  # fmt: skip
from warptile.errors import DTypeError
from warptile.torch.gradients import Setting, below_autograd, is_recorded, recorded, refuse_gradients
from warptile.torch.library import LIBRARY, OPTIONS, implement, overload, plain
from warptile.torch.results import result_type

_TYPES = "ScalarType? out_dtype=None, ScalarType? partial_dtype=None"

SCHEMAS = {
    GATHER: (
        "(Tensor a_shard, Tensor[] bs, int gather_dim, str group_name, *, bool return_a=True, "
        f"ScalarType? out_dtype=None, {OPTIONS}) -> (Tensor, Tensor[])"
    ),
    SCATTER: (
        "(Tensor a, Tensor b, str reduce_op, int scatter_dim, str group_name, *, Tensor? c=None, "
        f"{_TYPES}, {OPTIONS}) -> Tensor"
    ),
    REDUCE: f"(Tensor a, Tensor b, str reduce_op, str group_name, *, {_TYPES}, {OPTIONS}) -> Tensor",
}
"""Signatures in the language of PyTorch's dispatcher. ``c`` is added to this rank's partial. Without ``return_a`` a
tensor of no element stands for the gathered one."""

for _name, _schema in SCHEMAS.items():
    # Not cudagraph_unsafe: NCCL is captured, and the ranks have compared their calls before (in the warm-up).
    LIBRARY.define(_name + _schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout))


def setting_of(options: dict[str, Any]) -> Setting:
    """What gradients have to know of a call's options."""
    return Setting(
        1, 1, options.get("precision"), options.get("max_sms"), options.get("backend"),
        options.get("batch_invariant", False),
    )  # fmt: skip


# --- all-gather, then a GEMM -----------------------------------------------------------------------------------------


def _gather_said(a_shard: Any, bs: Sequence[Any], gather_dim: int) -> Said:
    return {"a_shard": described(a_shard), "bs": [described(b) for b in bs], "gather_dim": gather_dim}


def _all_gather_matmul(
    a_shard: Any, bs: Sequence[Any], gather_dim: int, group_name: str, *, return_a: bool = True, out_dtype: Any = None,
    **options: Any,
) -> tuple[Any, list[Any]]:  # fmt: skip
    group = group_named(group_name)
    a_shard, bs = plain(a_shard), [plain(b) for b in bs]
    gather_dim = _axis(gather_dim, a_shard.dim())

    def call() -> RankCall:
        said = {
            **_gather_said(a_shard, bs, gather_dim),
            overlapped_gather.ABILITY: overlapped_gather.ability(a_shard, bs, gather_dim, options),
        }
        return RankCall(
            GATHER, said, lambda given: check_gather(given, group.size),
            lambda given: overlapped_gather.together(given, group),
        )  # fmt: skip

    signature = GATHER, gather_signature(a_shard, bs), gather_dim, *options.items()
    if agree(group, signature, a_shard.device, call):
        return _overlapped(group, a_shard, bs, gather_dim, return_a, out_dtype, options)
    shards = collectives.all_gather(group, a_shard, GATHER)
    a = _joined(shards, gather_dim)
    rows = a.flatten(0, -2)
    ds = [matmul(rows, b, out_dtype=out_dtype, **options).view(*a.shape[:-1], b.shape[1]) for b in bs]
    return (a if return_a else a.new_empty(0)), ds


def _overlapped(
    group: Group, a_shard: Any, bs: list[Any], gather_dim: int, return_a: bool, out_dtype: Any, options: dict[str, Any]
) -> tuple[Any, list[Any]]:
    """The same by copies between GPUs that overlap with the GEMMs."""
    key = part_of(a_shard)
    gather = group.gathers.get(key)
    if gather is None:
        gather = group.gathers[key] = overlapped_gather.OverlappedGather(group, a_shard)
    shape = list(a_shard.shape)
    shape[gather_dim] *= group.size
    ds = gather.multiply(a_shard, bs, out_dtype, options.get("max_sms"))
    a = gather.a.view(shape).clone() if return_a else a_shard.new_empty(0)
    return a, [d.view(*shape[:-1], d.shape[1]) for d in ds]


def _joined(shards: torch.Tensor, dim: int) -> torch.Tensor:
    """Shards (size, ...) as one tensor, one after the other along ``dim``; a copy unless no axis is before it."""
    return torch.cat(shards.unbind(), dim) if dim and shards.shape[1 : dim + 1].numel() > 1 else _one_axis(shards, dim)


def _one_axis(shards: torch.Tensor, dim: int) -> torch.Tensor:
    shape = list(shards.shape[1:])
    shape[dim] *= shards.shape[0]
    return shards.view(shape)


def _all_gather_matmul_fake(
    a_shard: Any, bs: Sequence[Any], gather_dim: int, group_name: str, *, return_a: bool = True, out_dtype: Any = None,
    **options: Any,
) -> tuple[Any, list[Any]]:  # fmt: skip
    gather_dim, size = _axis(gather_dim, a_shard.dim()), group_named(group_name).size
    check_gather([{"call": GATHER, **_gather_said(a_shard, bs, gather_dim)}], size)
    shape = list(a_shard.shape)
    shape[gather_dim] *= size
    ds = [a_shard.new_empty([*shape[:-1], b.shape[1]], dtype=result_type(a_shard, b, out_dtype)) for b in bs]
    return a_shard.new_empty(shape if return_a else [0]), ds


class AllGatherMatmulFunction(torch.autograd.Function):
    """Records an all-gather and its GEMMs for backward passes."""

    @staticmethod
    def forward(ctx: Any, setting: Setting, said: tuple[Any, ...], compute: Any, a_shard: Any, *bs: Any) -> Any:
        """``compute()``: the gathered tensor, then the products."""
        refuse_gradients(a_shard, "all_gather_matmul(a_shard.detach(), b.detach(), group)")
        a, ds = compute()
        needed = ctx.needs_input_grad[3:]
        ctx.save_for_backward(a if any(needed[1:]) else None, *(b if needed[0] else None for b in bs))
        ctx.said = setting, *said, a_shard.dtype
        ctx.set_materialize_grads(False)
        return a, *ds

    @staticmethod
    def backward(ctx: Any, grad_of_a: Any, *grads: Any) -> Any:
        """Gradients of a_shard and of every b."""
        a, *bs = ctx.saved_tensors
        setting, gather_dim, group_name, dtype = ctx.said
        needed = ctx.needs_input_grad[3:]
        grads = tuple(None if g is None else g.to(dtype) for g in grads)
        grad_bs = [
            _outer(setting, a, g) if wanted and g is not None else None
            for g, wanted in zip(grads, needed[1:], strict=True)
        ]
        grad_shard = None
        if needed[0]:
            terms = [(g, b) for g, b in zip(grads, bs, strict=True) if g is not None]
            grad_shard = _scattered_sum(setting, terms, grad_of_a, gather_dim, group_name)
        return None, None, None, grad_shard, *grad_bs


def _scattered_sum(setting: Setting, terms: list[Any], addend: Any, scatter_dim: int, group_name: str) -> Any:
    """Reduce-scatter of ``sum(g @ b.T) + addend``; None where there is nothing to add."""
    if not terms:
        return None if addend is None else _scattered(addend, scatter_dim, group_name)
    *first, (g, b) = terms
    for other, weights in first:
        part = setting.product(other.flatten(0, -2), weights.mT).view(*other.shape[:-1], weights.shape[0])
        addend = part if addend is None else addend + part
    return MATMUL_REDUCE_SCATTER(g, b.mT, "sum", scatter_dim, group_name, c=addend, **_options_of(setting))


def _scattered(addend: torch.Tensor, scatter_dim: int, group_name: str) -> Any:
    """Reduce-scatter of a tensor: an empty product and the tensor."""
    nothing = addend.new_empty((*addend.shape[:-1], 0)), addend.new_empty((0, addend.shape[-1]))
    return MATMUL_REDUCE_SCATTER(*nothing, "sum", scatter_dim, group_name, c=addend)


def _outer(setting: Setting, a: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """``a.T @ g`` of all rows: the gradient of a b."""
    return setting.product(a.flatten(0, -2).mT, g.flatten(0, -2))


def _options_of(setting: Setting) -> dict[str, Any]:
    return {
        "precision": setting.precision, "max_sms": setting.max_sms, "backend": setting.backend,
        "batch_invariant": setting.batch_invariant,
    }  # fmt: skip


_record_gather: Any = super(torch.autograd.Function, AllGatherMatmulFunction).apply


def _all_gather_matmul_autograd(
    keyset: Any, a_shard: Any, bs: Sequence[Any], gather_dim: int, group_name: str, *, return_a: bool = True,
    **options: Any,
) -> Any:  # fmt: skip
    recording = is_recorded(a_shard, *bs)
    return_a = return_a or (recording and any(b.requires_grad for b in bs))  # for the gradients of bs

    def compute() -> Any:
        return below_autograd(
            ALL_GATHER_MATMUL, keyset, a_shard, list(bs), gather_dim, group_name, return_a=return_a, **options
        )

    if not recording:
        return compute()
    said = _axis(gather_dim, a_shard.dim()), group_name
    a, *ds = recorded(_record_gather, setting_of(options), said, compute, a_shard, *bs)
    return a, ds


# --- a GEMM, then a reduce-scatter -----------------------------------------------------------------------------------


def _reduce_said(name: str, a: Any, b: Any, reduce_op: str, types: tuple[Any, Any], dim: int | None = None) -> Said:
    out_dtype, partial_dtype = (None if each is None else str(each).removeprefix("torch.") for each in types)
    return {
        "call": name, "a": described(a), "b": described(b), "reduce_op": reduce_op, "scatter_dim": dim,
        "out_dtype": out_dtype, "partial_dtype": partial_dtype,
    }  # fmt: skip


def _partial(a: Any, b: Any, c: Any, dtype: Any, options: dict[str, Any]) -> Any:
    """This rank's part of the sum over K: ``a @ b + c``."""
    addend = None if c is None else c.flatten(0, -2).to(dtype)
    found = matmul(a.flatten(0, -2), b, addend, out_dtype=dtype, **options)
    return found.view(*a.shape[:-1], b.shape[1])


def _agree_on_partials(
    group: Group, name: str, a: Any, b: Any, reduce_op: str, types: tuple[Any, Any], dim: int | None,
    options: dict[str, Any] | None, ability: Callable[[], Any],
) -> bool:  # fmt: skip
    """Whether ranks exchange partials in each other's memory: where all of them have the ``ability()`` to. It may
    follow from ``options``, which are None where it does not depend on any."""

    def call() -> RankCall:
        said = {**_reduce_said(name, a, b, reduce_op, types, dim), overlapped_gather.ABILITY: ability()}
        return RankCall(
            name, said, lambda given: check_reduce(given, group.size),
            lambda given: overlapped_gather.together(given, group),
        )  # fmt: skip

    further = () if options is None else tuple(options.items())
    return agree(group, (name, reduce_signature(a, b), reduce_op, dim, types, further), a.device, call)


def _matmul_reduce_scatter(
    a: Any, b: Any, reduce_op: str, scatter_dim: int, group_name: str, *, c: Any = None, out_dtype: Any = None,
    partial_dtype: Any = None, **options: Any,
) -> Any:  # fmt: skip
    group = group_named(group_name)
    a, b, c = plain(a), plain(b), plain(c)
    dim = _axis(scatter_dim, a.dim())
    types = out_dtype, partial_dtype

    def ability() -> Any:
        return overlapped_gather.ability(a, [b], dim, options) if c is None else None

    overlaps = _agree_on_partials(
        group, SCATTER, a, b, reduce_op, types, dim, options if c is None else None, ability
    )  # fmt: skip
    dtype = result_type(a, b, out_dtype)
    if overlaps:
        return _overlapped_scatter(group, a, b, reduce_op, dim, (dtype, partial_dtype or dtype), options)
    partial = _partial(a, b, c, partial_dtype or dtype, options)
    # Rank r owns part r along the axis: the parts, one after the other.
    parts = partial.unflatten(dim, (group.size, partial.shape[dim] // group.size))
    return collectives.reduce_scatter(group, parts.movedim(dim, 0).contiguous(), reduce_op, dtype, SCATTER)


def _overlapped_scatter(
    group: Group, a: Any, b: Any, reduce_op: str, dim: int, types: tuple[Any, Any], options: dict[str, Any]
) -> Any:
    """The same, with partials that the GEMM stores into the memory of the rank that adds them."""
    shape = [*a.shape[:-1], b.shape[1]]
    shape[dim] //= group.size
    rows = a.contiguous().flatten(0, -2)
    key = rows.shape[0] // group.size, b.shape[1], types[1]
    scatter = group.scatters.get(key)
    if scatter is None:
        scatter = group.scatters[key] = overlapped_scatter.OverlappedScatter(group, *key, a.device)
    return scatter.multiply(rows, b, reduce_op, types[0], options.get("max_sms")).view(shape)


def _matmul_reduce_scatter_fake(
    a: Any, b: Any, reduce_op: str, scatter_dim: int, group_name: str, *, c: Any = None, out_dtype: Any = None,
    partial_dtype: Any = None, **options: Any,
) -> Any:  # fmt: skip
    dim, size = _axis(scatter_dim, a.dim()), group_named(group_name).size
    check_reduce([_reduce_said(SCATTER, a, b, reduce_op, (out_dtype, partial_dtype), dim)], size)
    shape = [*a.shape[:-1], b.shape[1]]
    shape[dim] //= size
    return a.new_empty(shape, dtype=result_type(a, b, out_dtype))


class MatmulReduceScatterFunction(torch.autograd.Function):
    """Records a GEMM and its reduce-scatter for backward passes."""

    @staticmethod
    def forward(ctx: Any, setting: Setting, said: tuple[Any, ...], compute: Any, a: Any, b: Any, c: Any) -> Any:
        """``compute()``: this rank's part of the sum."""
        refuse_gradients(a, "matmul_reduce_scatter(a.detach(), b.detach(), group)")
        needed = ctx.needs_input_grad[3:]
        ctx.save_for_backward(a if needed[1] else None, b if needed[0] else None)
        ctx.said = setting, *said, a.dtype, None if c is None else c.dtype
        return compute()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Gradients of a, b and c."""
        a, b = ctx.saved_tensors
        setting, reduce_op, scatter_dim, group_name, dtype, c_dtype = ctx.said
        g = _of_mean(grad, reduce_op, group_name).to(dtype).contiguous()
        factors = [] if b is None else [b.mT]
        whole = a is not None or ctx.needs_input_grad[5]
        gathered, products = ALL_GATHER_MATMUL(
            g, factors, scatter_dim, group_name, return_a=whole, **_options_of(setting)
        )
        grad_b = None if a is None else _outer(setting, a, gathered)
        grad_c = gathered.to(c_dtype) if ctx.needs_input_grad[5] else None
        return None, None, None, products[0] if factors else None, grad_b, grad_c


def _of_mean(grad: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:
    return grad / group_named(group_name).size if reduce_op == "avg" else grad


_record_scatter: Any = super(torch.autograd.Function, MatmulReduceScatterFunction).apply


def _matmul_reduce_scatter_autograd(
    keyset: Any, a: Any, b: Any, reduce_op: str, scatter_dim: int, group_name: str, *, c: Any = None, **options: Any
) -> Any:
    def compute() -> Any:
        return below_autograd(MATMUL_REDUCE_SCATTER, keyset, a, b, reduce_op, scatter_dim, group_name, c=c, **options)

    if not is_recorded(a, b, c):
        return compute()
    said = reduce_op, _axis(scatter_dim, a.dim()), group_name
    return recorded(_record_scatter, setting_of(options), said, compute, a, b, c)


# --- a GEMM, then an all-reduce --------------------------------------------------------------------------------------


def _matmul_all_reduce(
    a: Any, b: Any, reduce_op: str, group_name: str, *, out_dtype: Any = None, partial_dtype: Any = None, **options: Any
) -> Any:
    group = group_named(group_name)
    a, b = plain(a), plain(b)
    types = out_dtype, partial_dtype

    def ability() -> Any:
        try:
            dtype = result_type(a, b, out_dtype)
        except DTypeError:  # which all ranks shall hear of
            return None
        return shared_sum.ability(a, b.shape[-1], partial_dtype or dtype, dtype, group, backend)

    backend = options.get("backend")
    shares = _agree_on_partials(group, REDUCE, a, b, reduce_op, types, None, {"backend": backend}, ability)
    dtype = result_type(a, b, out_dtype)
    if shares:
        rows, n, partial_type = a.flatten(0, -2), b.shape[1], partial_dtype or dtype
        shared = shared_sum.of_group(group, rows.shape[0] * n * partial_type.itemsize, a.device)
        total = shared.multiply(rows, b, reduce_op, (partial_type, dtype), options)
        return total.view(*a.shape[:-1], n)
    partial = _partial(a, b, None, partial_dtype or dtype, options)
    return collectives.all_reduce(group, partial, reduce_op, dtype, REDUCE)


def _matmul_all_reduce_fake(
    a: Any, b: Any, reduce_op: str, group_name: str, *, out_dtype: Any = None, partial_dtype: Any = None, **options: Any
) -> Any:
    check_reduce([_reduce_said(REDUCE, a, b, reduce_op, (out_dtype, partial_dtype))], group_named(group_name).size)
    return a.new_empty([*a.shape[:-1], b.shape[1]], dtype=result_type(a, b, out_dtype))


class MatmulAllReduceFunction(torch.autograd.Function):
    """Records a GEMM and its all-reduce for backward passes."""

    @staticmethod
    def forward(ctx: Any, setting: Setting, said: tuple[Any, ...], compute: Any, a: Any, b: Any) -> Any:
        """``compute()``: the sum."""
        refuse_gradients(a, "matmul_all_reduce(a.detach(), b.detach(), group)")
        needed = ctx.needs_input_grad[3:]
        ctx.save_for_backward(a if needed[1] else None, b if needed[0] else None)
        ctx.said = setting, *said, a.dtype
        return compute()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Gradients of a and b; ``grad`` is the same on all ranks."""
        a, b = ctx.saved_tensors
        setting, reduce_op, group_name, dtype = ctx.said
        g = _of_mean(grad, reduce_op, group_name).to(dtype)
        grad_a = None
        if b is not None:
            grad_a = setting.product(g.flatten(0, -2), b.mT).view(*g.shape[:-1], b.shape[0])
        return None, None, None, grad_a, None if a is None else _outer(setting, a, g)


_record_reduce: Any = super(torch.autograd.Function, MatmulAllReduceFunction).apply


def _matmul_all_reduce_autograd(keyset: Any, a: Any, b: Any, reduce_op: str, group_name: str, **options: Any) -> Any:
    def compute() -> Any:
        return below_autograd(MATMUL_ALL_REDUCE, keyset, a, b, reduce_op, group_name, **options)

    if not is_recorded(a, b):
        return compute()
    return recorded(_record_reduce, setting_of(options), (reduce_op, group_name), compute, a, b)


def _axis(dim: int, axes: int) -> int:
    """An axis counted from the front."""
    return dim + axes if dim < 0 else dim


ALL_GATHER_MATMUL, MATMUL_REDUCE_SCATTER, MATMUL_ALL_REDUCE = map(overload, (GATHER, SCATTER, REDUCE))
implement(GATHER, _all_gather_matmul, _all_gather_matmul_fake)
implement(SCATTER, _matmul_reduce_scatter, _matmul_reduce_scatter_fake)
implement(REDUCE, _matmul_all_reduce, _matmul_all_reduce_fake)
LIBRARY.impl(GATHER, _all_gather_matmul_autograd, "Autograd", with_keyset=True)
LIBRARY.impl(SCATTER, _matmul_reduce_scatter_autograd, "Autograd", with_keyset=True)
LIBRARY.impl(REDUCE, _matmul_all_reduce_autograd, "Autograd", with_keyset=True)
