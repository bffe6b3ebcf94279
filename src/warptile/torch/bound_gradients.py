"""Calls that are bound and whose gradient is recorded: a training step's calls, without planning or dispatching."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from warptile.api import OPTIONS
from warptile.torch.gradients import Setting, record_matmul

if TYPE_CHECKING:  # without a GPU nothing that drives one is loaded
    from warptile.runtime.bound_call import BoundCall
    from warptile.runtime.torch_calls import TorchCalls


@lru_cache(maxsize=1024)
def _setting(options: tuple[Any, ...]) -> Setting | None:
    """What gradients have to know of a call with these options; None where it takes the long way."""
    said = dict(zip(OPTIONS, options, strict=True))
    if any(said[name] is not None for name in ("epilogue", "scale_a", "scale_b", "config")):
        return None
    beta = 1 if said["beta"] is None else said["beta"]
    return Setting(said["alpha"], beta, said["precision"], said["max_sms"], said["backend"], said["batch_invariant"])


def recorded_call(calls: TorchCalls, found: BoundCall, a: Any, b: Any, c: Any, options: tuple[Any, ...]) -> Any:
    """The result of a bound call with its gradient recorded, or None where it has to take the long way."""
    setting = _setting(options)
    if setting is None or torch._C._len_torch_dispatch_stack():
        return None

    def launch() -> Any:
        return calls.launched(found, a.data_ptr(), b.data_ptr(), 0 if c is None else c.data_ptr(), 0, None)

    return record_matmul(a, b, c, setting, launch)
