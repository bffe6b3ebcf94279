"""Ranks whose calls do not go together, and ranks that are gone: typed errors on every rank, and no hang."""

import os
import subprocess
import sys
import time

import pytest

import two_ranks
from two_ranks import answers

torch = pytest.importorskip("torch", reason="torch is not installed")

import quick_products  # noqa: E402
import warptile as wt  # noqa: E402
import warptile.distributed as wd  # noqa: E402
from warptile.distributed import collectives  # noqa: E402
from warptile.distributed.process_groups import Group  # noqa: E402

TIMEOUT_S = 3


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


def gather(rows, k=8, dtype=torch.float32, **options):
    return wd.all_gather_matmul(zeros(rows, k, dtype=dtype), zeros(k, 6, dtype=dtype), **options)


def scatter(rows=4, k=8, n=6, **options):
    return wd.matmul_reduce_scatter(zeros(rows, k), zeros(k, n), **options)


MISMATCHES = {
    "rows": (lambda rank: gather(4 + rank), wt.ShapeError, "rank 0 gave (4, 8), rank 1 gave (5, 8)"),
    "K": (lambda rank: gather(4, 8 + rank), wt.ShapeError, "rank 0 gave (4, 8), rank 1 gave (4, 9)"),
    "types": (
        lambda rank: gather(4, dtype=(torch.float32, torch.bfloat16)[rank]), wt.DTypeError,
        "rank 0 gave float32, rank 1 gave bfloat16",
    ),
    "axis": (
        lambda rank: wd.all_gather_matmul(zeros(2, 2, 8), zeros(8, 6), gather_dim=rank), wt.ArgumentError,
        "rank 0 gave 0, rank 1 gave 1",
    ),
    "columns": (lambda rank: scatter(n=6 + rank), wt.ShapeError, "rank 0 gave 6, rank 1 gave 7"),
    "rows of a sum": (lambda rank: scatter(4 + 2 * rank), wt.ShapeError, "rank 0 gave (4,), rank 1 gave (6,)"),
    "operation": (
        lambda rank: scatter(reduce_op=("sum", "avg")[rank]), wt.ArgumentError, "rank 0 gave 'sum', rank 1 gave 'avg'"
    ),
    "types of partials": (
        lambda rank: scatter(partial_dtype=(None, "float64")[rank]), wt.ArgumentError,
        "rank 0 gave None, rank 1 gave 'float64'",
    ),
    "uneven": (lambda rank: scatter(5), wt.ShapeError, "on rank 0: scatter_dim: axis 0 of the result (5, 6)"),
    "one rank's operands": (
        lambda rank: wd.matmul_all_reduce(zeros(4, 8), zeros(8 - rank, 6)), wt.ShapeError,
        "on rank 1: a has shape (4, 8) and b has shape (7, 6)",
    ),
    "one rank's types": (
        lambda rank: wd.matmul_all_reduce(zeros(4, 8), zeros(8, 6, dtype=(torch.float32, torch.float16)[rank])),
        wt.DTypeError, "on rank 1: a is float32 and b is float16",
    ),
    "functions": (
        lambda rank: gather(4) if rank else scatter(), wt.ArgumentError,
        "rank 0 matmul_reduce_scatter, rank 1 all_gather_matmul",
    ),
    "K axis": (lambda rank: gather(4, gather_dim=1), wt.UnsupportedError, "the K axis of a_shard (4, 8)"),
}  # fmt: skip


def mismatches(rank):
    quick_products.install(pytest.MonkeyPatch())
    moved = []
    collectives._move = lambda *arguments, move=collectives._move: moved.append(1) or move(*arguments)
    for name, (call, error, message) in MISMATCHES.items():
        with pytest.raises(error) as raised:
            call(rank)
        assert message in str(raised.value), (name, str(raised.value))
        assert type(raised.value) is error
    assert not moved, "nothing is sent before ranks agree"
    assert gather(4).shape == (8, 6), "ranks that have disagreed can go on"
    assert moved
    served, Group.serves = Group.serves, lambda group, device: False  # as a group with NCCL alone
    with pytest.raises(wt.ArgumentError, match="has no backend"):
        gather(6)
    Group.serves = served
    for text, call in {
        "torch.nn.Linear": lambda: wd.all_gather_matmul(zeros(2, 8), torch.nn.Linear(2, 2)),
        "str": lambda: wd.matmul_all_reduce(zeros(2, 8), zeros(8, 2), 7),
        "no process group 'other'": lambda: wd.matmul_all_reduce(zeros(2, 8), zeros(8, 2), "other"),
    }.items():
        with pytest.raises(wt.WarptileError, match=text.removeprefix("torch.nn.").replace("str", "got int")):
            call()


def test_every_rank_is_told_what_each_rank_gave_before_anything_is_sent(tmp_path):
    answers(two_ranks.run(mismatches, tmp_path))


def repeated(rank):
    quick_products.install(pytest.MonkeyPatch())
    from warptile.distributed.process_groups import group_named

    group = group_named(torch.distributed.group.WORLD.group_name)
    for _ in range(3):
        gather(4)
    scatter()
    assert group.exchanges == 2, "a call of a known kind compares nothing"
    wd.all_gather_matmul(zeros(4, 8), zeros(8, 6 + rank))
    scatter(k=8 + 8 * rank)
    assert group.exchanges == 2, "columns of a rank's own, and its part of K, are nothing to the others"
    # One rank repeats a call, the other makes a new one.
    start = time.monotonic()
    with pytest.raises(wt.CommunicationError) as raised:
        gather(4 + rank)
    assert time.monotonic() - start < 3 * TIMEOUT_S
    return str(raised.value)


def test_a_new_kind_of_call_on_one_rank_ends_in_time_on_both(tmp_path):
    first, second = answers(two_ranks.run(repeated, tmp_path, timeout_s=TIMEOUT_S))
    assert "rank 1 waits in a call of another kind: all_gather_matmul(a_shard={'shape': [5, 8]" in first
    assert "waited 0:00:03 for rank 0" in second


def deserted(rank, known):
    quick_products.install(pytest.MonkeyPatch())
    if known:
        gather(4)
    if rank == 1:
        os._exit(3)
    start = time.monotonic()
    with pytest.raises(wt.CommunicationError) as raised:
        gather(4)
    assert time.monotonic() - start < 2 * TIMEOUT_S
    return raised.value


@pytest.mark.parametrize("known", [False, True], ids=["before the first call", "after it"])
def test_a_rank_that_dies_is_an_error_on_the_others(tmp_path, known):
    left, gone = two_ranks.run(deserted, tmp_path, known, timeout_s=TIMEOUT_S)
    answers([left])
    assert gone is None
    assert isinstance(left, wt.CommunicationError)
    assert "make a new group" in str(left)


def test_importing_loads_no_dtensors_before_a_style_is_used():
    code = (
        "import sys, warptile.distributed as wd; print('torch.distributed.tensor' in sys.modules); "
        "wd.ColwiseParallel; print('torch.distributed.tensor' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
    with pytest.raises(AttributeError, match="nothing_like_it"):
        wd.nothing_like_it  # noqa: B018


def test_without_a_process_group_the_error_says_what_to_call():
    with pytest.raises(wt.ArgumentError, match="init_process_group"):
        wd.all_gather_matmul(zeros(2, 8), zeros(8, 2))
