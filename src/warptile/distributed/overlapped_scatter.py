"""GEMM and reduce-scatter at once, on GPUs of one host: partials are stored where they are summed.

Every rank has a buffer in symmetric memory with a place for the partial of each rank. The GEMM goes owner by owner, the
next rank first and its own rows last, and its epilogue stores each owner's rows straight into that owner's memory, so
that what crosses the links does so while the next tiles are multiplied. A barrier of torch's symmetric memory later
every rank adds what it has received, in the order of ranks. Another one before the stores keeps ranks from overwriting
what an owner still adds. Everything that is launched is loaded before the first barrier.

It is used only with ``WARPTILE_OVERLAP=on``, on every rank: it has been run on two GPUs, and not on more.
"""

from __future__ import annotations

from typing import Any

import torch

from warptile.api import matmul
from warptile.arrays import array_view
from warptile.arrays.operands import arrange
from warptile.distributed import collectives
from warptile.distributed.overlapped_gather import Launch, symmetric
from warptile.distributed.process_groups import Group
from warptile.planning.gathered_plan import whole_k


class OverlappedScatter:
    """The buffer of a group for parts of one shape and type.

    Args:
        group: the ranks.
        rows: that each rank has of the sum.
        n: columns.
        dtype: of partials.
        device: this rank's GPU.

    Raises:
        CommunicationError: torch finds no symmetric memory for the group.
    """

    def __init__(self, group: Group, rows: int, n: int, dtype: Any, device: torch.device) -> None:
        self._rank, self._size, self._rows = group.rank, group.size, rows
        self._part_bytes = rows * n * dtype.itemsize
        memory, self._handle = symmetric(group, "matmul_reduce_scatter", self._size * self._part_bytes, device)
        self.partials = memory[: self._size * self._part_bytes].view(dtype).view(self._size, rows, n)
        self._launches: dict[Any, Launch | None] = {}

    def multiply(
        self, a: torch.Tensor, b: torch.Tensor, reduce_op: str, dtype: Any, max_sms: int | None
    ) -> torch.Tensor:
        """This rank's rows of the sum of every rank's ``a @ b``: (rows, N).

        Args:
            a: (size * rows, K), rows without gaps between them.
            b: (K, N).
            reduce_op, dtype: as of `collectives.sum_in_rank_order`.
            max_sms: as of `warptile.matmul`.
        """
        b = b if b.is_contiguous() or b.mT.is_contiguous() else b.contiguous()
        launch = self._launch(a, b, max_sms)
        whole = None if launch is not None else matmul(a, b, out_dtype=self.partials.dtype, max_sms=max_sms)
        self._handle.barrier(channel=0)
        for step in range(1, self._size + 1):
            owner = (self._rank + step) % self._size
            target = int(self._handle.buffer_ptrs[owner]) + self._rank * self._part_bytes
            self._store(a[owner * self._rows :], b, whole, owner, target, launch)
        self._handle.barrier(channel=1)
        return collectives.sum_in_rank_order(self.partials, reduce_op, dtype)

    def _store(
        self, rows: torch.Tensor, b: torch.Tensor, whole: torch.Tensor | None, owner: int, target: int,
        launch: Launch | None,
    ) -> None:  # fmt: skip
        """Put an owner's rows of this rank's partial into its memory: by the GEMM itself, or by a copy of the whole."""
        stream = torch.cuda.current_stream(rows.device).cuda_stream
        if launch is not None:
            launch(stream, rows.data_ptr(), b.data_ptr(), target)
            return
        from warptile.gpu import driver

        assert whole is not None
        driver.copy_between(target, whole.data_ptr() + owner * self._part_bytes, self._part_bytes, stream)

    def _launch(self, a: torch.Tensor, b: torch.Tensor, max_sms: int | None) -> Launch | None:
        """The GEMM of one owner's rows, planned, compiled and loaded once; None where the whole has to be computed
        first, which is nothing to the other ranks."""
        key = a.shape, a.data_ptr() % 16, b.shape, b.stride(), b.data_ptr() % 16, max_sms
        if key not in self._launches:
            self._launches[key] = self._made(a, b, max_sms)
        return self._launches[key]

    def _made(self, a: torch.Tensor, b: torch.Tensor, max_sms: int | None) -> Launch | None:
        """Bits are those of the whole GEMM: neither it nor that of some rows may split K among CTAs."""
        from warptile.runtime.execute import GpuBackend, compiled, planned

        backend = GpuBackend(array_view.view(a, "a").device)
        whole = arrange(a, b, out_dtype=self.partials.dtype)
        part = arrange(a[: self._rows], b, out=self.partials[self._rank])
        plan = planned(part.problem, backend, max_sms=max_sms)
        if not (whole_k(planned(whole.problem, backend, max_sms=max_sms)) and whole_k(plan)):
            return None
        if part.copies or part.target is None or plan.kernel.copies or plan.kernel.workspaces:
            return None
        kernel = compiled(plan)
        addresses = {"A": a.data_ptr(), "B": b.data_ptr(), "D": self.partials[self._rank].data_ptr()}
        made: Launch = backend.load(kernel).launcher(plan.launch(kernel.entry), tuple(addresses), addresses)
        return made
