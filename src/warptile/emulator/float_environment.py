"""The floating-point environment of the thread that emulates: rounding to nearest, subnormal numbers kept.

Callers may have changed it. XLA's CPU client runs programs with subnormal numbers flushed to zero, and so does torch
after ``torch.set_flush_denormal(True)``; NumPy and machine code made by Numba would follow, and results would change.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_DEFAULT = ctypes.c_void_p(-1)
"""``FE_DFL_ENV`` of glibc (``bits/fenv.h``, x86-64 and AArch64)."""
_ENVIRONMENT_BYTES = 64
"""At least ``sizeof(fenv_t)``: 32 on x86-64, 8 on AArch64."""


@contextmanager
def default_float_environment() -> Iterator[None]:
    """Compute in C's default environment, and restore the thread's own (ISO C 7.6.4, ``fegetenv`` and ``fesetenv``)."""
    library = _library()
    if library is None:
        yield
        return
    own = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    library.fegetenv(own)
    library.fesetenv(_DEFAULT)
    try:
        yield
    finally:
        library.fesetenv(own)


@cache
def _library() -> Any:
    """The C library's mathematical part; None where it has no environment to set."""
    library = ctypes.CDLL(None)
    return library if hasattr(library, "fesetenv") and hasattr(library, "fegetenv") else None
