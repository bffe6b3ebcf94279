"""Workspaces: device memory that launches need in addition to their operands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Workspace:
    """Device memory that a kernel needs in addition to its operands.

    Attributes:
        name: the name by which parameters point to it; not one of A, B, C, D, E.
        bytes: its size, at least 1; it is aligned to 256 bytes.
        zero: all zeros before a launch, and the kernel leaves it so: flags and counters through which CTAs wait
            for each other, and which need no clearing. Else its content is undefined.
    """

    name: str
    bytes: int
    zero: bool = False

    def __post_init__(self) -> None:
        assert self.name not in tuple("ABCDE"), self.name
        assert self.bytes > 0, self
