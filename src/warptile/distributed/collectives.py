"""The three movements of data that tensor parallelism needs, by torch.distributed, and sums in the order of ranks.

NCCL's and gloo's own reductions add in an order that follows from the number of ranks, the size and the topology. Here
partials are moved and then added by the rank that owns the sum, rank 0's first, so that the bits follow from the
partials alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from warptile.distributed.agreement import lost
from warptile.distributed.process_groups import Group
from warptile.runtime.rank_sum import ACCESS_BYTES, MOST_RANKS, TYPES, RankSum, add_on_gpu
from warptile.torch.results import TORCH_TYPES

_all_gather_single: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name before

ONE_EXCHANGE_BYTES = 1 << 20
"""Partials of at most so many bytes are sent to every rank, each of which adds all of them; larger ones are added in
parts, one for each rank, which are gathered. The first way sends world / 2 times as many bytes in one exchange where
the second has two. The limit was chosen, not measured; it does not change a bit of the result."""


def all_gather(group: Group, shard: torch.Tensor, what: str) -> torch.Tensor:
    """Every rank's tensor, of one shape and type: (size, ...)."""
    if group.size == 1:
        return shard.clone(memory_format=torch.contiguous_format).unsqueeze(0)
    gathered = shard.new_empty((group.size, *shard.shape))
    if gathered.numel():
        _move(_all_gather_single, group, gathered, shard, what)
    return gathered


def exchange_parts(group: Group, parts: torch.Tensor, what: str) -> torch.Tensor:
    """Part r of every rank's ``parts`` (size, ...) on rank r, in the order of the ranks they are from."""
    if group.size == 1:
        return parts
    received = torch.empty_like(parts, memory_format=torch.contiguous_format)
    if parts.numel():
        _move(dist.all_to_all_single, group, received, parts, what)
    return received


def reduce_scatter(group: Group, parts: torch.Tensor, reduce_op: str, dtype: Any, what: str) -> torch.Tensor:
    """The sum over ranks of part r of ``parts`` (size, ...), on rank r: (...)."""
    return sum_in_rank_order(exchange_parts(group, parts, what), reduce_op, dtype)


def all_reduce(group: Group, partial: torch.Tensor, reduce_op: str, dtype: Any, what: str) -> torch.Tensor:
    """The sum over ranks of ``partial``, on every rank."""
    if in_one_exchange(group, partial.numel() * partial.element_size()):
        return sum_in_rank_order(all_gather(group, partial, what), reduce_op, dtype)
    return all_reduce_in_parts(group, partial, reduce_op, dtype, what)


def in_one_exchange(group: Group, partial_bytes: int) -> bool:
    """Whether every rank adds all partials of an all-reduce."""
    return group.size <= 2 or partial_bytes <= ONE_EXCHANGE_BYTES


def all_reduce_in_parts(group: Group, partial: torch.Tensor, reduce_op: str, dtype: Any, what: str) -> torch.Tensor:
    """As `all_reduce`, with the same bits: each rank adds a part of the elements, and the parts are gathered."""
    flat = partial.reshape(-1)
    each = -(-flat.numel() // group.size)
    parts = flat.new_zeros(group.size * each)
    parts[: flat.numel()] = flat
    reduced = reduce_scatter(group, parts.view(group.size, each), reduce_op, dtype, what)
    return all_gather(group, reduced, what).view(-1)[: flat.numel()].view(partial.shape)


def sum_in_rank_order(partials: torch.Tensor, reduce_op: str, dtype: Any) -> torch.Tensor:
    """``((partials[0] + partials[1]) + partials[2]) + ...``, rounded once, to ``dtype``.

    It is added in float32; in float64 or int32 where the partials are of that type. With ``"avg"`` the sum is divided
    by how many partials there are before it is rounded.
    """
    if partials.shape[0] == 1:
        return partials[0].to(dtype)
    if partials.is_cuda and adds_in_one_pass(partials.dtype, dtype, len(partials)):
        return _sum_in_one_pass(partials, reduce_op, dtype)
    wide = partials.dtype if partials.dtype in (torch.float64, torch.int32) else torch.float32
    total = partials[0].to(wide, copy=True)
    for each in partials[1:]:
        total += each
    if reduce_op == "avg":
        total /= total.new_full((), partials.shape[0])  # of a number, a GPU multiplies by its reciprocal
    return total.to(dtype)


def _sum_in_one_pass(partials: torch.Tensor, reduce_op: str, dtype: Any) -> torch.Tensor:
    """The same on a GPU, by one kernel."""
    partials = partials.contiguous()
    start, each_bytes = partials.data_ptr(), partials[0].numel() * partials.element_size()
    addresses = [start + rank * each_bytes for rank in range(len(partials))]
    return sum_at(addresses, partials[0], reduce_op, dtype)


def sum_at(addresses: Sequence[int], like: torch.Tensor, reduce_op: str, dtype: Any) -> torch.Tensor:
    """The same of partials at addresses that this GPU reads, in the order of ranks.

    Args:
        addresses: of each rank's, without gaps between its elements.
        like: shape, type and GPU of one of them.
        reduce_op: ``"sum"`` or ``"avg"``.
        dtype: of the sum.
    """
    total = like.new_empty(like.shape, dtype=dtype)
    count = total.numel()
    if count:
        aligned = count % _ELEMENTS == 0 and not any(each % ACCESS_BYTES for each in addresses)
        kind = RankSum(len(addresses), _ONE_PASS[like.dtype], _ONE_PASS[dtype], aligned)
        ordinal = like.get_device()
        stream = torch._C._cuda_getCurrentRawStream(ordinal)
        divisor = len(addresses) if reduce_op == "avg" else 1
        add_on_gpu(kind, addresses, total.data_ptr(), count, divisor, ordinal, stream)
    return total


def adds_in_one_pass(partial_dtype: Any, dtype: Any, size: int) -> bool:
    """Whether `sum_at` takes partials and sums of these types, of so many ranks."""
    return partial_dtype in _ONE_PASS and dtype in _ONE_PASS and size <= MOST_RANKS


_ONE_PASS = {TORCH_TYPES[name]: name for name in TYPES}
_ELEMENTS = 8
"""A multiple of so many elements, of any of the types, is a multiple of 16 bytes."""


def _move(collective: Callable[..., Any], group: Group, to: torch.Tensor, tensor: torch.Tensor, what: str) -> None:
    """Run a collective on bytes: backends do not know all element types."""
    try:
        collective(_bytes(to), _bytes(tensor.contiguous()), group=group.process_group)
    except RuntimeError as error:  # dist.DistError is one
        raise lost(group, what, tensor.device, error) from error


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)
