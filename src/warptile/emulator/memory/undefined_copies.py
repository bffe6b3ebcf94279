"""Undefined values that kernels have copied to global memory, for the host that reads it: some are padding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warptile.errors import SourceLocation

_SHORTEST_STRUCT, _STARTS = 2, 64


@dataclass(frozen=True)
class UndefinedCopy:
    """A store of what a kernel had read and nothing had written.

    Attributes:
        kernel: its entry.
        thread: that stored it.
        text: of the instruction.
        location: of the instruction.
        read: where a kernel has read it first, for messages.
        first: the instruction that did.
        alone: nothing in the lines of memory that it was read from had been written, so that it is no padding.
    """

    kernel: str
    thread: str
    text: str
    location: SourceLocation
    read: str
    first: SourceLocation | None
    alone: bool


@dataclass(frozen=True)
class UnwrittenBytes:
    """Undefined bytes of a range of global memory.

    Attributes:
        count: how many there are.
        copied: a store that has brought some of them, if a kernel has.
        value: what that store has brought is no padding: it is what somebody meant to read.
        gaps: bytes that every element of an array of structs lacks, as a text; empty where the bytes are no such array.
    """

    count: int
    copied: UndefinedCopy | None
    value: bool
    gaps: str


def gaps(undefined: NDArray[np.bool_]) -> str:
    """Of bytes of an array of structs, those that every struct lacks, such as ``"4 to 7 of every 16"``.

    Empty where the undefined bytes do not repeat, or if there are no others.
    """
    edges = np.diff(undefined.astype(np.int8), prepend=np.int8(0))
    starts = np.flatnonzero(edges == 1)[:_STARTS]
    for size in (starts[1:] - starts[0]).tolist():
        if size >= _SHORTEST_STRUCT and 2 * size <= len(undefined) and _repeats(undefined, size):
            struct = np.flatnonzero(undefined[:size])
            runs = np.split(struct, np.flatnonzero(np.diff(struct) > 1) + 1)
            said = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs]
            return f"{', '.join(said)} of every {size}"
    return ""


def _repeats(flags: NDArray[np.bool_], size: int) -> bool:
    """Whether flags are the same for each ``size`` of them: of most that are not, the first ones tell."""
    few = 64 * size
    return all(bool((each[size:] == each[:-size]).all()) for each in (flags[:few], flags))
