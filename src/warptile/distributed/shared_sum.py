"""GEMM and all-reduce of few rows, on GPUs of one host: every rank reads the partials of all where they are.

Every rank has a buffer in symmetric memory, which its GEMM writes its partial to. A barrier of torch's symmetric memory
later, one kernel on each rank reads the partials of all ranks over the links and adds them in the order of ranks.
Another barrier behind it keeps ranks from overwriting what a peer still reads.

It is used only with ``WARPTILE_OVERLAP=on``, on every rank: it has been run on two GPUs, and not on more.
"""

from __future__ import annotations

from typing import Any

import torch

from warptile.api import matmul
from warptile.distributed import collectives
from warptile.distributed.overlapped_gather import place_of, symmetric
from warptile.distributed.process_groups import Group

LEAST_BYTES = 1 << 20
"""Of a buffer: partials of many shapes share it."""


def ability(
    a: torch.Tensor, n: int, partial_dtype: Any, dtype: Any, group: Group, backend: str | None
) -> Any:  # fmt: skip
    """This rank's host and GPU if it can add partials in its peers' memory, else None.

    Args:
        a: (..., K), its part of K.
        n: columns of the sum.
        partial_dtype, dtype: types of partials and of their sum.
        group: the ranks.
        backend: of the GEMM, as of `warptile.matmul`.
    """
    elements = a.shape[:-1].numel() * n
    if not a.is_cuda or not elements or backend == "emulator":
        return None
    if not collectives.adds_in_one_pass(partial_dtype, dtype, group.size):
        return None
    if not collectives.in_one_exchange(group, elements * partial_dtype.itemsize):
        return None
    return place_of(a)


class SharedSum:
    """A buffer of a group for partials.

    Args:
        group: the ranks.
        size_bytes: the most bytes of a partial.
        device: this rank's GPU.

    Raises:
        CommunicationError: torch finds no symmetric memory for the group.
    """

    def __init__(self, group: Group, size_bytes: int, device: torch.device) -> None:
        self._memory, self._handle = symmetric(group, "matmul_all_reduce", size_bytes, device)
        self._addresses = [int(each) for each in self._handle.buffer_ptrs]
        self._partials: dict[Any, torch.Tensor] = {}

    def multiply(
        self, a: torch.Tensor, b: torch.Tensor, reduce_op: str, types: tuple[Any, Any], options: dict[str, Any]
    ) -> torch.Tensor:
        """The sum of every rank's ``a @ b``: (rows, N).

        Args:
            a: (rows, K).
            b: (K, N).
            reduce_op: as of `collectives.sum_in_rank_order`.
            types: of partials and of the sum.
            options: of `warptile.matmul`.
        """
        key = a.shape[0], b.shape[1], types[0]
        partial = self._partials.get(key)
        if partial is None:
            size_bytes = a.shape[0] * b.shape[1] * types[0].itemsize
            partial = self._partials[key] = self._memory[:size_bytes].view(types[0]).view(key[:2])
        matmul(a, b, out=partial, **options)
        self._handle.barrier(channel=0)
        total = collectives.sum_at(self._addresses, partial, reduce_op, types[1])
        self._handle.barrier(channel=1)
        return total


def of_group(group: Group, size_bytes: int, device: torch.device) -> SharedSum:
    """The group's buffer for partials of so many bytes; all ranks make the call. Buffers are kept: CUDA graphs have
    their addresses."""
    room = max(LEAST_BYTES, 1 << (size_bytes - 1).bit_length())
    found = group.sums.get(room)
    if found is None:
        found = group.sums[room] = SharedSum(group, room, device)
    return found
