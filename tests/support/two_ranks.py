"""Two ranks of a gloo group in processes of their own, each with a time limit: nothing that goes wrong in one can hang.

Processes are forked from a server that has imported torch and warptile once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

LIMIT_S = 50
"""Seconds after which ranks are ended."""

PRELOADED = ["torch", "torch.distributed", "torch._dynamo", "torch.distributed.tensor.parallel", "warptile.distributed"]


@dataclass(frozen=True)
class _Raised:
    """An exception that a rank did not expect."""

    rank: int
    text: str


def run(
    function: Callable[..., Any], folder: Path, *arguments: Any, timeout_s: float = 20, size: int = 2,
    backend: str = "gloo",
) -> list[Any]:  # fmt: skip
    """What ``function(rank, *arguments)`` returns on each rank, or what it raises, for `answers`.

    Args:
        function: of a module that can be imported; what it returns or raises can be pickled.
        folder: for the file by which ranks find each other; a new one for each call.
        arguments: for the function.
        timeout_s: of the group's collectives.
        size: how many ranks.
        backend: of the group; with one for GPUs, each rank has one, and kernels run there.

    Returns:
        One value for each rank; None for one that ended by itself without an answer.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    pipes, ranks = [], []
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_rank,
            args=(theirs, function, rank, size, str(folder / "store"), timeout_s, backend, arguments, sys.path),
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        ranks.append(process)
    try:
        found = [_answer(pipe) for pipe in pipes]
    finally:
        for process in ranks:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
    return found


def answers(found: list[Any]) -> list[Any]:
    """The ranks' answers; raises what one of them raised, unless it was returned."""
    for each in found:
        if isinstance(each, _Raised):
            raise AssertionError(f"on rank {each.rank}:\n{each.text}")
    return found


def _answer(pipe: Any) -> Any:
    if not pipe.poll(LIMIT_S):
        raise TimeoutError(f"a rank gave no answer within {LIMIT_S} s")
    with contextlib.suppress(EOFError):
        return pipe.recv()
    return None


def _rank(
    pipe: Any, function: Callable[..., Any], rank: int, size: int, store: str, timeout_s: float, backend: str,
    arguments: Any, path: list[str],
) -> None:  # fmt: skip
    sys.path[:] = path
    if backend == "gloo":
        os.environ["WARPTILE_BACKEND"] = "emulator"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if backend != "gloo":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        backend, store=dist.FileStore(store, size), rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s)
    )
    try:
        answer = function(rank, *arguments)
    except Exception as error:
        answer = _Raised(rank, f"{error}\n{traceback.format_exc()}")
    pipe.send(answer)
    pipe.close()
    os._exit(0)  # other ranks may be gone: no orderly end of the group
