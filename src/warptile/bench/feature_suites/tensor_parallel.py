"""The suite tp: tensor-parallel GEMMs of all ranks of a process group, beside NCCL and torch's fused operators.

Every rank runs the same calls in the same order. A round times each participant once, after a barrier; its time is that
of the slowest rank.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import warptile as wt
from warptile.bench.protocol.feature_times import CallTime, FeatureTimes
from warptile.errors import UnsupportedError, WarptileError

SUITE = "tp"
"""Its name."""

VARIABLE = "WARPTILE_OVERLAP"
"""Of `warptile.distributed`, which imports torch."""

ROUNDS, BRIEF_ROUNDS, WARM_UP = 25, 7, 3
CALLS = 8
"""Calls of a participant in a round, one after the other."""

OURS, OVERLAPPED, ALONE = "warptile", "warptile, overlapped", "the GEMM alone"
"""Participants: the default, what ``WARPTILE_OVERLAP=on`` makes of it, and what rows are held to: the product of a
rank, of operands that are there."""

IN_GRAPH = ", in a graph"
"""Ends the name of a participant whose calls are replayed from one CUDA graph."""


@dataclass(frozen=True)
class TensorParallelRow:
    """One row: a call and the extents of the layer, of which a rank has a part.

    Attributes:
        call: ``"all-gather"``, ``"reduce-scatter"`` or ``"all-reduce"``.
        m, n, k: all rows; all columns; all of K.
    """

    call: str
    m: int
    n: int
    k: int

    @property
    def name(self) -> str:
        """Such as ``"all-gather 8192x14336x4096"``."""
        return f"{self.call} {self.m}x{self.n}x{self.k}"


LAYERS = ((8192, 14336, 4096), (8192, 4096, 14336), (2048, 28672, 8192), (512, 28672, 8192))
"""M, N and K of layers with many rows: feed-forward blocks of models with 8 and 70 billion parameters."""

DECODED = ((1, 8192, 28672), (16, 8192, 28672), (64, 8192, 28672))
"""Of layers in decoding."""

ROWS = (
    *(TensorParallelRow(call, *layer) for call in ("all-gather", "reduce-scatter") for layer in LAYERS),
    *(TensorParallelRow("all-reduce", *layer) for layer in DECODED),
)

Call = tuple[str, Callable[[], Any]]


@dataclass(frozen=True)
class TimedCall:
    """What takes turns in a row.

    Attributes:
        name: of it.
        run: makes ``calls`` calls.
        calls: how many.
    """

    name: str
    run: Callable[[], Any]
    calls: int = 1


@dataclass(frozen=True)
class Ranks:
    """The process group that is timed.

    Attributes:
        torch: the module.
        device: of this rank's tensors: ``"cuda"``, or ``"cpu"`` in tests.
        beside: another group of the same ranks, for calls that overlap: ranks agree on that once for each group.
    """

    torch: Any
    device: str
    beside: Any

    @property
    def group(self) -> Any:
        """All ranks."""
        return self.torch.distributed.group.WORLD

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return int(self.group.size())

    def drawn(self, *shape: int) -> Any:
        """A bf16 tensor."""
        return self.torch.randn(*shape, device=self.device, dtype=self.torch.bfloat16)


def here() -> Ranks:
    """The ranks that torchrun started, a GPU each.

    Raises:
        UnsupportedError: torch is not installed, or this process was not started by torchrun.
    """
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise UnsupportedError("torch is not installed; pip install 'warptile[torch]' adds it") from error
    if "LOCAL_RANK" not in os.environ:
        raise UnsupportedError(
            "suite tp: this process is no rank of a group; start it with "
            "torchrun --nproc-per-node 2 -m warptile.cli.main bench --suite tp"
        )
    importlib.import_module("torch.distributed._symmetric_memory")  # defines torch's fused operators
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl")
    return Ranks(torch, "cuda", torch.distributed.new_group())


def calls(ranks: Ranks, row: TensorParallelRow) -> Iterator[Call]:
    """What a row compares, warptile first."""
    makers = {"all-gather": _all_gather, "reduce-scatter": _reduce_scatter, "all-reduce": _all_reduce}
    yield from makers[row.call](ranks, row)


def _all_gather(ranks: Ranks, row: TensorParallelRow) -> Iterator[Call]:
    import warptile.distributed as wd

    dist, group = ranks.torch.distributed, ranks.group
    shard, w = ranks.drawn(row.m // ranks.size, row.k), ranks.drawn(row.n // ranks.size, row.k)
    whole, b = ranks.drawn(row.m, row.k), w.T
    yield OURS, lambda: wd.all_gather_matmul(shard, b, group)
    yield OVERLAPPED, lambda: wd.all_gather_matmul(shard, b, ranks.beside)
    yield ALONE, lambda: wt.matmul(whole, b)

    def by_torch() -> Any:
        dist.all_gather_into_tensor(whole, shard, group=group)
        return whole @ b

    yield "NCCL, torch.matmul", by_torch
    symmetric = ranks.torch.ops.symm_mem
    yield "torch, fused", lambda: symmetric.fused_all_gather_matmul(shard, [b], 0, group.group_name, return_A=False)


def _reduce_scatter(ranks: Ranks, row: TensorParallelRow) -> Iterator[Call]:
    import warptile.distributed as wd

    dist, group = ranks.torch.distributed, ranks.group
    a, w = ranks.drawn(row.m, row.k // ranks.size), ranks.drawn(row.n, row.k // ranks.size)
    b, scattered = w.T, ranks.drawn(row.m // ranks.size, row.n)
    yield OURS, lambda: wd.matmul_reduce_scatter(a, b, group)
    yield OVERLAPPED, lambda: wd.matmul_reduce_scatter(a, b, ranks.beside)
    yield ALONE, lambda: wt.matmul(a, b)
    yield "NCCL, torch.matmul", lambda: dist.reduce_scatter_tensor(scattered, a @ b, group=group)
    symmetric = ranks.torch.ops.symm_mem
    yield "torch, fused", lambda: symmetric.fused_matmul_reduce_scatter(a, b, "sum", 0, group.group_name)


def _all_reduce(ranks: Ranks, row: TensorParallelRow) -> Iterator[Call]:
    import warptile.distributed as wd

    dist, group = ranks.torch.distributed, ranks.group
    a, w = ranks.drawn(row.m, row.k // ranks.size), ranks.drawn(row.n, row.k // ranks.size)
    b = w.T
    yield OURS, lambda: wd.matmul_all_reduce(a, b, group)
    yield OVERLAPPED, lambda: wd.matmul_all_reduce(a, b, ranks.beside)
    yield ALONE, lambda: wt.matmul(a, b)
    yield "NCCL, torch.matmul", lambda: dist.all_reduce(a @ b, group=group)


def measure(ranks: Ranks, row: TensorParallelRow, *, rounds: int = ROUNDS) -> FeatureTimes:
    """Time a row's participants in turns, on a GPU each of them also from a CUDA graph; every rank returns the same.

    A participant that fails on one rank, such as an operator that torch does not have there, is left out on all.
    """
    made: list[TimedCall] = []
    failed: list[tuple[str, str]] = []

    def prepare(name: str, make: Callable[[], TimedCall]) -> bool:
        with _overlap(name.startswith(OVERLAPPED)):
            participant, reason = _made(ranks, make)
        if participant is None:
            failed.append((name, reason))
        else:
            made.append(participant)
        return participant is not None

    for name, call in calls(ranks, row):
        runs = prepare(name, partial(_warm, TimedCall(name, call)))
        if runs and ranks.device == "cuda":
            prepare(name + IN_GRAPH, partial(_captured, ranks, name + IN_GRAPH, call))
    found: list[list[float]] = [[] for _ in made]
    for _ in range(rounds):
        for participant, rounds_us in zip(made, found, strict=True):
            rounds_us.append(_slowest(ranks, _time_us(ranks, participant)))
    times = [CallTime(name=each.name, rounds_us=tuple(its)) for each, its in zip(made, found, strict=True)]
    times += [CallTime(name=name, failed=reason) for name, reason in failed]
    return FeatureTimes(row=row.name, times=tuple(times))


@contextmanager
def _overlap(wanted: bool) -> Iterator[None]:
    """The variable that ranks look at in their first call of a kind."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "on" if wanted else "off"
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def _made(ranks: Ranks, make: Callable[[], TimedCall]) -> tuple[TimedCall | None, str]:
    """A participant that has run on all ranks; else None, and why it did not run on one of them."""
    made, reason = None, ""
    try:
        made = make()
    except (RuntimeError, NotImplementedError, AttributeError, WarptileError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    given: list[str] = [""] * ranks.size
    ranks.torch.distributed.all_gather_object(given, reason, group=ranks.group)
    reasons = [f"on rank {rank}: {each}" for rank, each in enumerate(given) if each]
    return (None, reasons[0]) if reasons else (made, "")


def _warm(participant: TimedCall) -> TimedCall:
    for _ in range(WARM_UP):
        participant.run()
    return participant


def _captured(ranks: Ranks, name: str, call: Callable[[], Any]) -> TimedCall:
    """Calls that are replayed together from a graph."""
    cuda = ranks.torch.cuda
    cuda.synchronize()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return _warm(TimedCall(name, graph.replay, CALLS))


def _time_us(ranks: Ranks, participant: TimedCall) -> float:
    """Microseconds of a call on this rank, over `CALLS` of them, begun when all ranks are there."""
    ranks.torch.distributed.barrier(group=ranks.group)
    times = CALLS // participant.calls
    if ranks.device == "cpu":
        start_s = time.perf_counter()
        for _ in range(times):
            participant.run()
        return (time.perf_counter() - start_s) * 1e6 / CALLS
    start, end = (ranks.torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        participant.run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / CALLS


def _slowest(ranks: Ranks, time_us: float) -> float:
    found = ranks.torch.tensor([time_us], dtype=ranks.torch.float64)
    ranks.torch.distributed.all_reduce(found, ranks.torch.distributed.ReduceOp.MAX, group=ranks.group)
    return float(found)
