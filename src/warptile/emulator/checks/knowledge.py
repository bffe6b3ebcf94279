"""What tables of knowledge say (see `VectorClocks`), as machine code."""

from __future__ import annotations

from typing import Any

import numba

from warptile.emulator.lanes import WARP


@numba.njit(cache=True)
def search(keys: Any, values: Any, low: int, high: int, key: int) -> int:
    """The value of ``key`` in a sorted range, or 0."""
    end = high
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return values[low] if low < end and keys[low] == key else 0


@numba.njit(cache=True)
def published(
    thread: int, clock: int, table: int, shape: Any, starts: Any, keys: Any, values: Any
) -> bool:  # fmt: skip
    """Does a table of knowledge say that ``thread`` (from 0) is past ``clock``?"""
    if table == 0:
        return False
    lanes_per_cta, stride, _ = shape
    low, high = starts[table], starts[table + 1]
    base, inner = thread // lanes_per_cta * stride, thread % lanes_per_cta
    if clock < search(keys, values, low, high, base):
        return True
    if clock < search(keys, values, low, high, base + 1 + inner // WARP):
        return True
    last = search(keys, values, low, high, base + 1 + lanes_per_cta // WARP + inner)
    return bool(clock < last)


@numba.njit(cache=True)
def first_unpublished(
    warp: int, lanes: int, clock: int, table: int, shape: Any, starts: Any, keys: Any, values: Any
) -> int:  # fmt: skip
    """Of some ``lanes`` (a mask) of a warp of the grid, the first that a table does not say to be past ``clock``, or
    -1."""
    lanes_per_cta, stride, _ = shape
    low = high = base = own = 0
    if table != 0:
        low, high = starts[table], starts[table + 1]
        base, inner = warp * WARP // lanes_per_cta * stride, warp * WARP % lanes_per_cta
        if clock < search(keys, values, low, high, base):
            return -1
        if clock < search(keys, values, low, high, base + 1 + inner // WARP):
            return -1
        own = base + 1 + lanes_per_cta // WARP + inner
    for lane in range(WARP):
        if lanes >> lane & 1 and (table == 0 or clock >= search(keys, values, low, high, own + lane)):
            return lane
    return -1
