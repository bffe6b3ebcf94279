"""All-gather and GEMM at once, on GPUs of one host: rows are pulled from peers while others are multiplied.

Every rank has a buffer for all of A in symmetric memory, in which it puts its own rows. A stream beside the GEMM copies
each peer's rows into it and sets their flag; the GEMM (wgmma-final with the option GATHERED_A) begins with its own rows
and waits for the flags of the others. Copies between GPUs and the setting of flags need no SM, so the waiting kernel
may occupy all of them. Barriers of torch's symmetric memory stand before the copies (every rank's rows are there) and
behind them (no rank overwrites rows that a peer still reads). What is launched has been loaded before the first
barrier.

It is used only with ``WARPTILE_OVERLAP=on``, on every rank: it has been run on two GPUs, and not on more.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import torch

from warptile.api import matmul
from warptile.arrays import array_view
from warptile.arrays.operands import arrange
from warptile.distributed.agreement import Said
from warptile.distributed.process_groups import Group
from warptile.errors import CommunicationError
from warptile.planning.gathered_plan import GatheredPlan
from warptile.rungs.wgmma.gathered import FLAG_BYTES, SHARD_FLAGS, Shards
from warptile.torch.results import result_type

VARIABLE = "WARPTILE_OVERLAP"
"""Set to ``on`` to have all-gathers overlap with GEMMs."""

MOST_RANKS = 8
"""GPUs of one host."""

_WORDS_BYTES = 256
"""Behind a gathered operand: the word that is 1."""

_PLAIN = {"accumulate": None, "precision": None, "batch_invariant": False}
"""Options that the kernel takes no other values of."""

ABILITY = "overlap"
"""What ranks tell each other of this: where their GPU is, or None where they cannot overlap."""


def ability(a: torch.Tensor, bs: Sequence[torch.Tensor], dim: int, options: dict[str, Any]) -> Any:
    """This rank's host and GPU if it can overlap a call whose rows ranks have parts of along ``dim``, else None."""
    if not a.is_cuda or not bs or not a.numel():
        return None
    if torch.cuda.get_device_capability(a.device) != (9, 0) or a.dtype not in _TYPES:
        return None
    if dim == len(a.shape) - 1 or a.shape[:dim].numel() > 1 or a.shape[-1] * a.element_size() % 16:
        return None
    if any(options.get(name, usual) != usual for name, usual in _PLAIN.items()) or options.get("backend") == "emulator":
        return None
    return place_of(a)


def place_of(tensor: torch.Tensor) -> Any:
    """This rank's host and GPU where overlap is asked for, else None."""
    return [socket.gethostname(), tensor.get_device()] if os.environ.get(VARIABLE, "off") == "on" else None


_TYPES = (torch.bfloat16, torch.float16)


def together(given: Sequence[Said], group: Group) -> bool:
    """Whether all ranks can overlap, on GPUs of one host that reach each other."""
    places = [each[ABILITY] for each in given]
    if any(each is None for each in places) or not 2 <= len(places) <= MOST_RANKS:
        return False
    hosts, gpus = {each[0] for each in places}, [each[1] for each in places]
    return len(hosts) == 1 and len(set(gpus)) == len(gpus)


Launch = Callable[..., None]
"""``launch(stream, *addresses)`` queues a GEMM that is compiled and loaded."""


def symmetric(group: Group, call: str, size_bytes: int, device: torch.device) -> tuple[torch.Tensor, Any]:
    """Bytes in symmetric memory, and torch's handle of them, which knows their addresses on all ranks. All ranks make
    the call.

    Raises:
        CommunicationError: torch finds none for the group.
    """
    from torch.distributed import _symmetric_memory

    try:
        memory = _symmetric_memory.empty(size_bytes, dtype=torch.uint8, device=device)
        return memory, _symmetric_memory.rendezvous(memory, group.name)
    except RuntimeError as error:
        raise CommunicationError(
            f"{call}: the GPUs of group {group.name!r} have no symmetric memory ({error}); set {VARIABLE}=off on all "
            f"ranks: data then goes by NCCL",
            group=group.name,
        ) from error


class OverlappedGather:
    """The buffer of a group for shards of one shape and type.

    Args:
        group: the ranks.
        a_shard: (..., K), a shard.

    Raises:
        CommunicationError: torch finds no symmetric memory for the group.
    """

    def __init__(self, group: Group, a_shard: torch.Tensor) -> None:
        self._rank, self._size = group.rank, group.size
        self._rows, k = a_shard.shape[:-1].numel(), a_shard.shape[-1]
        self._shard_bytes = self._rows * k * a_shard.element_size()
        whole = self._size * self._shard_bytes
        memory, self._handle = symmetric(group, "all_gather_matmul", whole + _WORDS_BYTES, a_shard.device)
        self._one_offset = whole
        memory[whole : whole + FLAG_BYTES].view(torch.int32).fill_(1)
        self.a = memory[:whole].view(a_shard.dtype).view(self._size * self._rows, k)
        self._flags = torch.zeros(self._size, dtype=torch.int32, device=a_shard.device)
        self._own_alone = self._flags.clone()
        self._own_alone[self._rank] = 1
        self._beside = torch.cuda.Stream(a_shard.device)
        self._launches: dict[Any, Launch | None] = {}

    def multiply(
        self, a_shard: torch.Tensor, bs: Sequence[torch.Tensor], out_dtype: Any, max_sms: int | None
    ) -> list[torch.Tensor]:
        """``A @ b`` for every b: (size * rows, N) each. Afterwards `a` holds A, until the next call."""
        m = self.a.shape[0]
        bs = [b if b.is_contiguous() or b.mT.is_contiguous() else b.contiguous() for b in bs]
        ds = [b.new_empty((m, b.shape[1]), dtype=result_type(a_shard, b, out_dtype)) for b in bs]
        launches = [self._launch(b, d, max_sms) for b, d in zip(bs, ds, strict=True)]
        main = torch.cuda.current_stream(a_shard.device)
        start = self._rank * self._rows
        self.a[start : start + self._rows].copy_(a_shard.reshape(self._rows, -1))
        self._flags.copy_(self._own_alone)
        self._handle.barrier(channel=0)
        self._beside.wait_stream(main)
        self._pull(captured=torch.cuda.is_current_stream_capturing())
        for launch, b, d in zip(launches, bs, ds, strict=True):
            if launch is None:
                main.wait_stream(self._beside)
                matmul(self.a, b, out=d, max_sms=max_sms)
                continue
            launch(main.cuda_stream, self.a.data_ptr(), b.data_ptr(), d.data_ptr(), self._flags.data_ptr())
        main.wait_stream(self._beside)
        self._handle.barrier(channel=1)
        return ds

    def _pull(self, *, captured: bool) -> None:
        """Copy the peers' rows, the next rank's first, so that no two ranks read from one at the same time."""
        from warptile.gpu import driver

        stream = self._beside.cuda_stream
        for step in range(1, self._size):
            peer = (self._rank + step) % self._size
            at, flag = peer * self._shard_bytes, self._flags.data_ptr() + peer * FLAG_BYTES
            source = int(self._handle.buffer_ptrs[peer])
            driver.copy_between(self.a.data_ptr() + at, source + at, self._shard_bytes, stream)
            if captured:  # graphs hold no stream memory operations: the peer's word that is 1 is copied
                driver.copy_between(flag, source + self._one_offset, FLAG_BYTES, stream)
            else:
                driver.write_value(flag, 1, stream)

    def _launch(self, b: torch.Tensor, d: torch.Tensor, max_sms: int | None) -> Launch | None:
        """The GEMM with one b, planned, compiled and loaded once; None where it has to wait for all rows before, which
        is nothing to the other ranks."""
        key = b.shape, b.stride(), b.data_ptr() % 16, d.dtype, max_sms
        if key not in self._launches:
            self._launches[key] = self._made(b, d, max_sms)
        return self._launches[key]

    def _made(self, b: torch.Tensor, d: torch.Tensor, max_sms: int | None) -> Launch | None:
        from warptile.runtime.execute import GpuBackend, compiled, planned

        product = arrange(self.a, b, out=d)
        backend = GpuBackend(array_view.view(self.a, "a").device)
        shards = Shards(self._size, self._rows, self._rank)
        plan = GatheredPlan.like(planned(product.problem, backend, max_sms=max_sms), shards)
        if plan is None or product.copies or plan.kernel.copies or plan.kernel.workspaces:
            return None
        kernel = compiled(plan)
        addresses = self.a.data_ptr(), b.data_ptr(), d.data_ptr(), self._flags.data_ptr()
        names = "A", "B", "D", SHARD_FLAGS
        loaded, spec = backend.load(kernel), plan.launch(kernel.entry)
        made: Launch = loaded.launcher(spec, names, dict(zip(names, addresses, strict=True)))
        return made
