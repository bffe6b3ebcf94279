"""Finds output elements that two threads wrote with different values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import Array
from warptile.ptx.instruction import Instruction


class OutputWriters:
    """The last writer of each byte of the outputs.

    Attributes:
        conflict: of the first disagreement, the operand, the byte in it and the second instruction.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._tables = {name: np.full(size, -1, dtype=np.int64) for name, size in sizes.items()}
        self.conflict: tuple[str, int, Instruction] | None = None

    def follow(self, name: str) -> bool:
        """Whether this is one of the operands."""
        return name in self._tables

    def table(self, name: str) -> NDArray[np.int64] | None:
        """The last writer of each byte of an operand, -1 for none; None where it is not followed."""
        return self._tables.get(name)

    def note(
        self,
        name: str,
        instruction: Instruction,
        places: NDArray[np.int64],
        threads: Array,
        given: Array,
        held: Callable[[], Array],
    ) -> None:
        """``threads`` write the words ``given`` at the bytes ``places``, where those that ``held`` returns lie."""
        table = self._tables[name]
        last = table[places]
        other = (last >= 0) & (last != threads)
        if self.conflict is None and other.any():
            differs = other & _differ(given, held())
            if differs.any():
                self.conflict = (name, int(places[np.argmax(differs)]), instruction)
        table[places] = threads


def _differ(given: Array, held: Array) -> Array:
    """Which words differ; 16 bytes come as complex128, of which NaN would differ from itself."""
    if held.dtype.itemsize < 16:
        return np.asarray(given != held)
    pairs = np.ascontiguousarray(given).view(np.uint64) != np.ascontiguousarray(held).view(np.uint64)
    return np.asarray(pairs.reshape(-1, 2).any(axis=1))
