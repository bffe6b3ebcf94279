"""The first emulated launch on a machine: Numba compiles the emulator's loops, which takes half a minute."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

from warptile.emulator.checks import access_history

_log = logging.getLogger(__name__)


@cache
def say_what_takes_long() -> None:
    """Say so, once a process, where Numba's cache on disk does not have them yet."""
    loop = access_history.rows  # one of those that every kernel needs
    module, folder = loop.py_func.__module__.rpartition(".")[2], loop.stats.cache_path
    if folder is None or not any(Path(folder).glob(f"{module}.{loop.py_func.__qualname__}-*.nbi")):
        _log.warning("the emulator compiles parts of itself, once on this machine: some 30 s")
