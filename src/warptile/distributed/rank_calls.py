"""What a rank is called with, and whether the calls of all ranks go together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from warptile.distributed.agreement import Said, listed
from warptile.errors import ArgumentError, DTypeError, LayoutError, ShapeError, UnsupportedError, WarptileError
from warptile.torch.results import TORCH_TYPES

REDUCE_OPS = ("sum", "avg")
"""How partials become one."""

GATHER, SCATTER, REDUCE = "all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce"
"""Names of the calls."""

_EXAMPLES = {
    GATHER: "all_gather_matmul(torch.ones(4, 8), torch.ones(8, 6), group)",
    SCATTER: "matmul_reduce_scatter(torch.ones(4 * group.size(), 8), torch.ones(8, 6), group)",
    REDUCE: "matmul_all_reduce(torch.ones(4, 8), torch.ones(8, 6), group)",
}

_NAMES = {found: name for name, found in reversed(TORCH_TYPES.items())}


def described(tensor: torch.Tensor) -> dict[str, Any]:
    """A tensor as ranks compare it. Strides are packed before data is sent, so they are free."""
    return {"shape": list(tensor.shape), "dtype": _NAMES.get(tensor.dtype, str(tensor.dtype)), "device": _place(tensor)}


def part_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Shape, type and place of a tensor, as part of a key."""
    return tensor.shape, tensor.dtype, tensor.device.type


def gather_signature(a_shard: torch.Tensor, bs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """What of a call's tensors the others have to know. Columns of b are a rank's own: where they change on one rank,
    the others repeat a call that they know."""
    return part_of(a_shard), frozenset((b.dim(), b.shape[:1], b.dtype, b.device.type) for b in bs)


def reduce_signature(a: torch.Tensor, b: torch.Tensor) -> tuple[Any, ...]:
    """The same of a call whose results are summed, of which each rank has a part of K that is its own."""
    k = a.shape[-1:].numel()
    fits = b.shape[:1] == a.shape[-1:], k > 0, k * a.element_size() % 16 == 0  # what `overlapped_gather.ability` asks
    return a.shape[:-1], a.dtype, a.device.type, b.shape[1:], b.dtype, b.device.type, fits


def check_gather(given: Sequence[Said], size: int) -> None:
    """Raise unless calls of `all_gather_matmul` go together, one for each rank (or one, on its own).

    Raises:
        WarptileError: they do not.
    """
    _check_each(given, size, _check_gather)
    _check_same(GATHER, given, "a_shard", "shape", ShapeError, "pad the shards to one shape")
    _check_same(GATHER, given, "a_shard", "dtype", DTypeError, "give a_shard.to(torch.bfloat16)")
    _check_same(GATHER, given, "a_shard", "device", LayoutError, "put the tensors of all ranks on such devices")
    _check_options(GATHER, given, "gather_dim")


def check_reduce(given: Sequence[Said], size: int) -> None:
    """Raise unless calls of `matmul_reduce_scatter` or `matmul_all_reduce` go together.

    Raises:
        WarptileError: they do not.
    """
    _check_each(given, size, _check_partial)
    name = given[0]["call"]
    rows = [{**each, "a": {**each["a"], "rows": each["a"]["shape"][:-1]}} for each in given]
    _check_same(name, rows, "a", "rows", ShapeError, "each rank has all rows of a, and a part of K")
    columns = [{**each, "b": {**each["b"], "columns": each["b"]["shape"][-1]}} for each in given]
    _check_same(name, columns, "b", "columns", ShapeError, "each rank has all columns of b, and a part of K")
    _check_same(name, given, "a", "dtype", DTypeError, "give a.to(torch.bfloat16) and b.to(torch.bfloat16)")
    _check_same(name, given, "a", "device", LayoutError, "put the tensors of all ranks on such devices")
    _check_options(name, given, "reduce_op", "scatter_dim", "out_dtype", "partial_dtype")


# --- one rank --------------------------------------------------------------------------------------------------------


def _check_each(given: Sequence[Said], size: int, check: Callable[[Said, int], None]) -> None:
    for rank, said in enumerate(given):
        try:
            check(said, size)
        except WarptileError as error:
            if len(given) == 1:
                raise
            raise type(error)(f"on rank {rank}: {error}") from None


def _check_gather(said: Said, size: int) -> None:
    a, dim = said["a_shard"], said["gather_dim"]
    for b in said["bs"]:
        _check_product(GATHER, "a_shard", a, b)
    if len(a["shape"]) < 2:
        raise ShapeError(f"a_shard: got shape {_tuple(a)}; it has rows and K at least, such as {_EXAMPLES[GATHER]}")
    if dim == len(a["shape"]) - 1:
        raise UnsupportedError(
            f"gather_dim: got {dim}, the K axis of a_shard {_tuple(a)}; with a part of K on each rank there is "
            f"{_EXAMPLES[REDUCE]}"
        )
    if not 0 <= dim < len(a["shape"]):
        raise ArgumentError(f"gather_dim: got {dim}; a_shard {_tuple(a)} has rows along 0 to {len(a['shape']) - 2}")


def _check_partial(said: Said, size: int) -> None:
    name, a, b = said["call"], said["a"], said["b"]
    _check_product(name, "a", a, b)
    if said["reduce_op"] not in REDUCE_OPS:
        raise ArgumentError(f"reduce_op: got {said['reduce_op']!r}; it is 'sum' or 'avg'")
    if said["reduce_op"] == "avg" and not a["dtype"].startswith(("float", "bfloat")):
        raise DTypeError(f"reduce_op: 'avg' of {a['dtype']} would not be whole numbers; take 'sum' and divide the sum")
    dim = said.get("scatter_dim")
    if dim is None:
        return
    shape = [*a["shape"][:-1], b["shape"][-1]]
    if not 0 <= dim < len(shape):
        raise ArgumentError(f"scatter_dim: got {dim}; the result {tuple(shape)} has axes 0 to {len(shape) - 1}")
    if shape[dim] % size:
        raise ShapeError(
            f"scatter_dim: axis {dim} of the result {tuple(shape)} has an extent of {shape[dim]}, which {size} ranks "
            f"do not divide evenly; pad it to {-(-shape[dim] // size) * size}, such as {_EXAMPLES[SCATTER]}"
        )


def _check_product(call: str, name: str, a: Said, b: Said) -> None:
    """Whether one rank's operands multiply."""
    if len(a["shape"]) < 2 or len(b["shape"]) != 2 or a["shape"][-1] != b["shape"][0]:
        raise ShapeError(
            f"{name} has shape {_tuple(a)} and b has shape {_tuple(b)}; {call} multiplies (..., K) by (K, N), such as "
            f"{_EXAMPLES[call]}"
        )
    if a["dtype"] != b["dtype"]:
        raise DTypeError(f"{name} is {a['dtype']} and b is {b['dtype']}; both need one type: b.to({name}.dtype)")
    if a["device"] != b["device"]:
        raise LayoutError(
            f"{name} is on {a['device']} and b is on {b['device']}; both are in one place: b.to({name}.device)"
        )


# --- all ranks -------------------------------------------------------------------------------------------------------


def _check_same(
    call: str, given: Sequence[Said], name: str, what: str, error: type[WarptileError], advice: str
) -> None:
    values = [each[name][what] for each in given]
    if any(each != values[0] for each in values):
        shown = listed([f"gave {tuple(each) if isinstance(each, list) else each}" for each in values])
        raise error(
            f"{call}: {name} has not the same {what} on all ranks: {shown}; {advice}, such as {_EXAMPLES[call]} on "
            f"every rank"
        )


def _check_options(call: str, given: Sequence[Said], *names: str) -> None:
    for name in names:
        values = [each.get(name) for each in given]
        if any(each != values[0] for each in values):
            raise ArgumentError(
                f"{call}: {name} differs: {listed([f'gave {each!r}' for each in values])}; give one value on all "
                f"ranks, such as {name}={values[0]!r}"
            )


def _tuple(said: Said) -> tuple[int, ...]:
    return tuple(said["shape"])


def _place(tensor: torch.Tensor) -> str:
    return str(tensor.device.type)
