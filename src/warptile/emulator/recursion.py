"""Functions that are called while they run: what a lane's earlier activation needs again when the later one returns.

Each function has one set of registers and of call parameters, which an activation finds as the one before left them.
So those of a lane that enters a function once more are put aside, and come back when it returns. Local variables
cannot be put aside, since pointers to them may be passed on: each further activation has them at another place, above
all others in the lane's local memory, and `shift` says how far away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import Active, Array
from warptile.emulator.memory.accesses import Memory
from warptile.emulator.memory.spaces import PARTLY
from warptile.emulator.program import ProgramLayout, Routine
from warptile.errors import UnsupportedError
from warptile.ptx.instruction import Register, Variable

DEEPEST = 4096
"""Activations of one function in a lane, beyond which a kernel is taken to recurse for ever."""


@dataclass
class _Kept:
    """What lanes have put aside, and which activations they had put aside before."""

    lanes: NDArray[np.intp]
    returns: NDArray[np.int64]
    registers: list[Array]
    frame: tuple[Array, Array]
    shift: NDArray[np.int64]
    before: NDArray[np.int64]
    depth: NDArray[np.int64]
    left: int


class Activations:
    """The activations of one function that is called again before it has returned.

    Args:
        routine: the function.
        layout: where its variables are.
        memory: with the local memory of all lanes.
        top: of each lane, how many bytes local variables of further activations take by now; shared by all functions.
    """

    def __init__(self, routine: Routine, layout: ProgramLayout, memory: Memory, top: NDArray[np.int64]) -> None:
        function = routine.function
        places = layout.frame_of(routine)
        formals = [each for each in (*function.parameters, *function.returns) if isinstance(each, Variable)]
        passed = [each for each in function.variables if each.space == "param"]
        self._name = function.name
        self._registers = routine.registers
        self._memory = memory
        self._bytes = _columns([*formals, *passed], places)
        self._results = _columns([each for each in function.returns if isinstance(each, Variable)], places)
        self._result_registers = [
            routine.registers.array(each) for each in function.returns if isinstance(each, Register)
        ]
        self._shift = layout.shifts.get(function.name, np.zeros(0, np.int64))
        self._locals = layout.moved_bytes(function.name)
        self._start = layout.recursion_start - layout.first_local(function.name)
        self._room = layout.local_bytes - layout.recursion_start
        self._top = top
        self._kept: list[_Kept | None] = []
        self._last = np.full(len(top), -1, dtype=np.int64)
        self._depth = np.zeros(len(top), dtype=np.int64)

    def enter(self, active: Active, returns: NDArray[np.int64]) -> None:
        """Lanes enter the function once more, which would have returned to ``returns``."""
        lanes, index = active.lanes, active.index
        if int(self._depth[index].max()) >= DEEPEST:
            raise UnsupportedError(f"{self._name} calls itself more than {DEEPEST} times")
        shift = self._shift[index].copy() if len(self._shift) else np.zeros(0, np.int64)
        self._kept.append(
            _Kept(
                lanes.copy(), returns.copy(), [each[index].copy() for each in self._registers.kept()],
                self._read(lanes, self._bytes), shift, self._last[index].copy(), self._depth[index].copy(), len(lanes),
            )
        )  # fmt: skip
        self._last[index] = len(self._kept) - 1
        self._depth[index] += 1
        if not len(self._shift):
            return
        self._shift[index] = self._start + self._top[index]
        self._top[index] += self._locals
        if int(self._top[index].max()) > self._room:
            raise UnsupportedError(
                f"{self._name} calls itself until its local variables take more than {self._room} bytes of a thread"
            )

    def leave(self, active: Active, deliver: Callable[[Active], None]) -> NDArray[np.int64]:
        """Lanes return from their last activation; ``deliver`` moves results to callers, for lanes of which something
        may have been put aside. Where each of them returns to next, or -1."""
        returns = np.full(active.count, -1, dtype=np.int64)
        last = self._last[active.index].copy()
        for number in np.unique(last).tolist():
            here = last == number
            part = active.where(here)
            if number < 0:
                deliver(part)
                continue
            kept = self._kept[number]
            assert kept is not None
            rows = np.searchsorted(kept.lanes, part.lanes)
            returns[here] = kept.returns[rows]
            self._restore(kept, rows, part, deliver)
            kept.left -= len(rows)
            if kept.left == 0:
                self._kept[number] = None
                while self._kept and self._kept[-1] is None:
                    self._kept.pop()
        return returns

    def _restore(self, kept: _Kept, rows: Array, part: Active, deliver: Callable[[Active], None]) -> None:
        lanes, index = part.lanes, part.index
        made = self._read(lanes, self._results)
        in_registers = [each[index].copy() for each in self._result_registers]
        for array, values in zip(self._registers.kept(), kept.registers, strict=True):
            array[index] = values[rows]
        self._registers.restored()
        self._write(lanes, self._bytes, (kept.frame[0][rows], kept.frame[1][rows]))
        self._last[index] = kept.before[rows]
        self._depth[index] = kept.depth[rows]
        if len(self._shift):
            self._shift[index] = kept.shift[rows]
            self._top[index] -= self._locals
        # Results are delivered from where the function has written them, which a caller may be about to do itself.
        own = self._read(lanes, self._results)
        own_registers = [each[index].copy() for each in self._result_registers]
        self._write(lanes, self._results, made)
        for array, values in zip(self._result_registers, in_registers, strict=True):
            array[index] = values
        deliver(part)
        self._write(lanes, self._results, own)
        for array, values in zip(self._result_registers, own_registers, strict=True):
            array[index] = values

    def _read(self, lanes: NDArray[np.intp], columns: NDArray[np.int64]) -> tuple[Array, Array]:
        space, where = self._memory.local_space, self._memory.local_origin[lanes][:, None] + columns
        return space.data[where], space.shadow[where]

    def _write(self, lanes: NDArray[np.intp], columns: NDArray[np.int64], what: tuple[Array, Array]) -> None:
        space, where = self._memory.local_space, self._memory.local_origin[lanes][:, None] + columns
        space.data[where], space.shadow[where] = what[0], what[1] & np.uint8(0xFF & ~PARTLY)


def _columns(variables: list[Variable], places: dict[str, int]) -> NDArray[np.int64]:
    """Offsets of the bytes of some variables in a lane's frame."""
    parts = [places[each.name] + np.arange(each.size_bytes) for each in variables]
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
