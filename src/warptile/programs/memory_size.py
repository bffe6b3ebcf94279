"""How much memory the GPU of a whole program has."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

MOST_BYTES = 80 << 30
"""Memory of the GPU on a machine with enough of its own."""

SHARE = 4
"""One byte on the GPU takes up to so many here: its value, what is known of it, and both again while arrays grow."""

_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Bytes that the processes of a container may have, or "max": Linux, cgroup v2."""


@cache
def device_bytes() -> int:
    """Bytes of the GPU's memory: a quarter of the machine's or of the container's."""
    return min(MOST_BYTES, _own_bytes() // SHARE)


def _own_bytes() -> int:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = _CONTAINER_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return physical
    return min(physical, int(limit)) if limit.isdigit() else physical
