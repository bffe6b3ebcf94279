"""The calls of tensor parallelism: GEMMs of an operand gathered from all ranks, or with a result summed over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from warptile.api import matmul
from warptile.distributed.collective_operators import ALL_GATHER_MATMUL, MATMUL_ALL_REDUCE, MATMUL_REDUCE_SCATTER
from warptile.distributed.process_groups import group_named, name_of
from warptile.distributed.rank_calls import GATHER, check_gather, described
from warptile.errors import ArgumentTypeError
from warptile.torch.results import torch_type


def all_gather_matmul(
    a_shard: Any,
    b: Any,
    group: Any = None,
    *,
    gather_dim: int = 0,
    return_a: bool = False,
    out_dtype: Any = None,
    accumulate: str | None = None,
    precision: str | None = None,
    max_sms: int | None = None,
    backend: str | None = None,
    batch_invariant: bool = False,
) -> Any:
    """``A @ b``, where A is every rank's ``a_shard``, one after the other: a column-parallel linear layer.

    Its gradient is a `matmul_reduce_scatter`. The bits are those of ``warptile.matmul(A, b)``.

    Args:
        a_shard: (..., K), this rank's part of A along ``gather_dim``; of one shape on all ranks.
        b: (K, N), this rank's own; N may differ between ranks. Or a list of such, which A is gathered for once.
        group: a ``ProcessGroup``, its name, a ``DeviceMesh`` of one dimension, or None for all ranks.
        gather_dim: the axis along which shards follow each other; not the last.
        return_a: return A too.
        out_dtype, accumulate, precision, max_sms, backend, batch_invariant: as of `warptile.matmul`.

    Returns:
        (..., N), with ``group.size()`` times the extent of ``a_shard`` along ``gather_dim``; a list of them for a list;
        with ``return_a`` the tuple of A and that. In a group of one rank it is ``warptile.matmul(a_shard, b)``.

    Raises:
        ShapeError, DTypeError, LayoutError, ArgumentError: arguments of this rank or of all ranks do not go together;
            raised on every rank before any data is sent.
        CommunicationError: a rank does not answer within the group's timeout.
    """
    bs = [b] if isinstance(b, torch.Tensor) else list(b) if isinstance(b, Sequence) else None
    if bs is None:
        raise ArgumentTypeError(f"b: got {type(b).__name__}; it takes a tensor (K, N), or a list of them")
    options = {
        "out_dtype": torch_type(out_dtype), "accumulate": accumulate, "precision": precision, "max_sms": max_sms,
        "backend": backend, "batch_invariant": batch_invariant,
    }  # fmt: skip
    name = name_of(group)
    if not torch.compiler.is_compiling() and group_named(name).size == 1:
        found, a = _of_one_rank(a_shard, bs, gather_dim, options), a_shard
    else:
        a, found = ALL_GATHER_MATMUL(a_shard, bs, gather_dim, name, return_a=return_a, **options)
    d = found[0] if isinstance(b, torch.Tensor) else found
    return (a, d) if return_a else d


def _of_one_rank(a: Any, bs: list[Any], gather_dim: int, options: dict[str, Any]) -> list[Any]:
    """The plain products, with no copy of ``a``."""
    dim = gather_dim + a.dim() if gather_dim < 0 else gather_dim
    check_gather([{"call": GATHER, "a_shard": described(a), "bs": [described(b) for b in bs], "gather_dim": dim}], 1)
    return [matmul(a, b, **options) for b in bs]


def matmul_reduce_scatter(
    a: Any,
    b: Any,
    group: Any = None,
    *,
    reduce_op: str = "sum",
    scatter_dim: int = 0,
    out_dtype: Any = None,
    partial_dtype: Any = None,
    accumulate: str | None = None,
    precision: str | None = None,
    max_sms: int | None = None,
    backend: str | None = None,
    batch_invariant: bool = False,
) -> Any:
    """This rank's part of the sum over all ranks of ``a @ b``: a row-parallel linear layer.

    Its gradient is an `all_gather_matmul`. Each rank computes its partial ``warptile.matmul(a, b)``; the owner of each
    part adds those of all ranks in float32, rank 0's first, and rounds the sum once. So the bits are the same in every
    run, and those of partials that are added up in this order in any other way.

    Args:
        a: (..., K), this rank's part of K.
        b: (K, N), the same part.
        group: as of `all_gather_matmul`.
        reduce_op: ``"sum"`` or ``"avg"``.
        scatter_dim: the axis of the result that is divided between the ranks, which its extent must be a multiple of.
        out_dtype: type of the result; as of `warptile.matmul`.
        partial_dtype: type in which partials are sent: that of the result by default, as NCCL's. ``torch.float32``
            sends twice the bytes of 16-bit results, and nothing but the sum is rounded.
        accumulate, precision, max_sms, backend, batch_invariant: as of `warptile.matmul`.

    Returns:
        (..., N), with the extent along ``scatter_dim`` divided by ``group.size()``. In a group of one rank it is
        ``warptile.matmul(a, b)``.

    Raises:
        ShapeError, DTypeError, LayoutError, ArgumentError: arguments of this rank or of all ranks do not go together;
            raised on every rank before any data is sent.
        CommunicationError: a rank does not answer within the group's timeout.
    """
    return MATMUL_REDUCE_SCATTER(
        a, b, reduce_op, scatter_dim, name_of(group), out_dtype=torch_type(out_dtype),
        partial_dtype=torch_type(partial_dtype), accumulate=accumulate, precision=precision, max_sms=max_sms,
        backend=backend, batch_invariant=batch_invariant,
    )  # fmt: skip


def matmul_all_reduce(
    a: Any,
    b: Any,
    group: Any = None,
    *,
    reduce_op: str = "sum",
    out_dtype: Any = None,
    partial_dtype: Any = None,
    accumulate: str | None = None,
    precision: str | None = None,
    max_sms: int | None = None,
    backend: str | None = None,
    batch_invariant: bool = False,
) -> Any:
    """The sum over all ranks of ``a @ b``, on every rank: a row-parallel linear layer of few rows, as in decoding.

    Partials are added as in `matmul_reduce_scatter`, so that all ranks have the same bits. The gradient takes that of
    the result to be the same on all ranks, as that of a replicated tensor is.

    Args:
        a: (..., K), this rank's part of K.
        b: (K, N), the same part.
        group: as of `all_gather_matmul`.
        reduce_op: ``"sum"`` or ``"avg"``.
        out_dtype, partial_dtype: as of `matmul_reduce_scatter`.
        accumulate, precision, max_sms, backend, batch_invariant: as of `warptile.matmul`.

    Returns:
        (..., N). In a group of one rank it is ``warptile.matmul(a, b)``.

    Raises:
        ShapeError, DTypeError, LayoutError, ArgumentError: arguments of this rank or of all ranks do not go together;
            raised on every rank before any data is sent.
        CommunicationError: a rank does not answer within the group's timeout.
    """
    return MATMUL_ALL_REDUCE(
        a, b, reduce_op, name_of(group), out_dtype=torch_type(out_dtype), partial_dtype=torch_type(partial_dtype),
        accumulate=accumulate, precision=precision, max_sms=max_sms, backend=backend, batch_invariant=batch_invariant,
    )  # fmt: skip
