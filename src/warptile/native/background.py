"""Machine code that is made in the background, once it is clear that the process goes on using it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")

CALLS_WITHOUT = 4
"""Calls until something is made: a process that makes fewer never pays for it."""

THREAD = "warptile-machine-code"
"""Name of threads that make it."""


class MadeLater(Generic[Made]):
    """What takes a while to make, and can be done without. Any number of threads may ask for it.

    Args:
        make: makes it; ImportError, OSError and RuntimeError mean that it cannot be made here.
    """

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self._calls = 0
        self._lock = threading.Lock()
        self.made: Made | None = None
        """None until it is there, and for good where it cannot be made."""

    def asked(self) -> Made | None:
        """As `made`. Making begins in the background when it has been asked for `CALLS_WITHOUT` times."""
        if self.made is None:
            with self._lock:
                self._calls += 1
                if self._calls == CALLS_WITHOUT:
                    # No daemon: the interpreter waits for it at exit instead of unloading LLVM while it runs.
                    threading.Thread(target=self.make_now, name=THREAD).start()
        return self.made

    def make_now(self) -> None:
        """Make it; do nothing where that cannot be."""
        try:
            self.made = self._make()
        except (ImportError, OSError, RuntimeError):
            return
