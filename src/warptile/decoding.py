"""JSON and plain data as structs, in any thread.

When a struct type is decoded for the first time, msgspec 0.22 prepares what it knows of the type, and two threads that
do so at once crash the process. So the first time is one thread's at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_lock = threading.Lock()
_prepared: set[Any] = set()


def decoded(body: bytes, kind: type[T]) -> T:
    """``msgspec.json.decode`` of what one of warptile's files holds.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: as ``msgspec.json.decode``.
    """
    return _safely(kind, lambda: msgspec.json.decode(body, type=kind))


def converted(found: Any, kind: type[T]) -> T:
    """``msgspec.convert`` of what was decoded before.

    Raises:
        msgspec.ValidationError: as ``msgspec.convert``.
    """
    return _safely(kind, lambda: msgspec.convert(found, type=kind))


def _safely(kind: type[T], decode: Callable[[], T]) -> T:
    if kind in _prepared:
        return decode()
    with _lock:
        found = decode()
        _prepared.add(kind)
    return found
