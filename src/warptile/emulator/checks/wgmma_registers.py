"""Tracks per warp how `wgmma` and other instructions have accessed the registers that `wgmma` uses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warptile.ptx.instruction import Instruction

Rows = NDArray[np.intp]


class WgmmaRegisters:
    """State of the registers that a function's `wgmma` instructions use: one row per register, one column per warp.

    Attributes:
        row: of each register.
        writing: unfinished products that will write it.
        reading: unfinished products that will read it as A.
        touched: something else read or wrote it since the last fence.
        written: it holds a value.
    """

    def __init__(self) -> None:
        self.row: dict[str, int] = {}
        self.given: list[int] = []
        self.writer: list[Instruction | None] = []
        self.toucher: list[Instruction | None] = []
        self.allocate(0)

    def rows(self, names: list[str]) -> Rows:
        """The rows of registers, new ones if need be."""
        return np.array([self.row.setdefault(name, len(self.row)) for name in names], dtype=np.intp)

    def allocate(self, warps: int) -> None:
        """Once all registers are known."""
        shape = (len(self.row), warps)
        self.writing: NDArray[np.int16] = np.zeros(shape, np.int16)
        self.reading: NDArray[np.int16] = np.zeros(shape, np.int16)
        self.touched: NDArray[np.bool_] = np.zeros(shape, np.bool_)
        self.written: NDArray[np.bool_] = np.zeros(shape, np.bool_)
        self.writer = [None] * len(self.row)
        self.toucher = [None] * len(self.row)

    def new_wave(self) -> None:
        """Nothing has happened."""
        for flags in (self.writing, self.reading, self.touched, self.written):
            flags.fill(0)
        self.written[self.given] = True
