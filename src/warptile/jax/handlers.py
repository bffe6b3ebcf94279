"""What XLA calls when a program with a matmul runs: one handler on GPUs, one on the CPU."""

from __future__ import annotations

import atexit
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import jax.ffi

from warptile import api
from warptile.arrays.xla_buffers import ProgramCall
from warptile.errors import UnsupportedError
from warptile.runtime import xla_ffi

TARGET = "warptile_matmul"
"""Name of both handlers in XLA's registry, which has a name once a platform."""

_REGISTRY = {"cuda": "CUDA", "cpu": "cpu"}
"""XLA's names of platforms, by those of JAX's lowering rules."""


@cache
def register(platform: str) -> Any:
    """Make the handler for ``"cuda"`` or ``"cpu"`` known to XLA, once a process.

    Returns:
        What has to live as long as the process does.

    Raises:
        UnsupportedError: this JAX has another interface.
    """
    if platform == "cuda":
        made = xla_ffi.handler(on_gpu, xla_ffi.place_of, xla_ffi.text)
    else:
        made = xla_ffi.handler(_counted_on_host, xla_ffi.no_place, xla_ffi.text)
        atexit.register(_wait_for_calls)
    try:
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(made), platform=_REGISTRY[platform])
    except Exception as error:  # XLA's and JAX's types of it differ between versions
        raise UnsupportedError(
            f"the foreign function interface of JAX {jax.__version__} does not take warptile's handler ({error}); it "
            f"needs JAX 0.9 or newer: pip install --upgrade jax"
        ) from error
    return made


def register_handlers() -> None:
    """Make matmuls of programs known that another process has compiled or exported (``jax.export``). Those that this
    process compiles need no such call.

    Raises:
        UnsupportedError: this JAX has another interface.
    """
    for platform in _REGISTRY:
        register(platform)


_parsed: dict[bytes, ProgramCall] = {}
"""Calls by their texts: as many as there are different matmuls in programs."""


def _call(text: bytes) -> ProgramCall:
    found = _parsed.get(text)
    if found is None:
        found = _parsed.setdefault(text, ProgramCall.parsed(text))
    return found


QUIET_S, MOST_S = 0.1, 10.0
"""At the interpreter's end: how long no call may have begun, and how long calls are waited for."""

_running: dict[object, None] = {}
_last_begun = 0.0


def _counted_on_host(text: bytes, place: None, arguments: Sequence[int], results: Sequence[int]) -> None:
    """`on_host`, known to be running."""
    global _last_begun
    call = object()
    _running[call] = None
    _last_begun = time.monotonic()
    try:
        on_host(text, place, arguments, results)
    finally:
        del _running[call]


def _wait_for_calls() -> None:
    """Wait at the interpreter's end for calls that XLA's threads still make, such as of a replicated result of which a
    program has read another device's copy. The interpreter would end these threads, and XLA waits for them in vain."""
    end = time.monotonic() + MOST_S
    while time.monotonic() < end and (_running or time.monotonic() - _last_begun < QUIET_S):
        time.sleep(QUIET_S / 10)


def on_gpu(text: bytes, place: xla_ffi.XlaPlace, arguments: Sequence[int], results: Sequence[int]) -> None:
    """Queue a matmul on XLA's stream.

    The first run of a program plans, compiles and binds; later ones launch what is bound
    (`warptile.runtime.xla_calls`).
    """
    call = _call(text)
    a, b, c, out, tensors = call.at(place.ordinal, place.stream, (*arguments, *results))
    api.matmul(a, b, c, out=out, **call.keywords, **tensors)


def on_host(text: bytes, place: None, arguments: Sequence[int], results: Sequence[int]) -> None:
    """Multiply buffers in host memory, as `warptile.matmul` does NumPy arrays: where there is no GPU, emulated."""
    call = _call(text)
    a, b, c, out, tensors = call.in_host_memory((*arguments, *results))
    api.matmul(a, b, c, out=out, **call.keywords, **tensors)
