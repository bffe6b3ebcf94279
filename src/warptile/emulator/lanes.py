"""Lanes and registers: the NumPy axis along which every thread of a wave of CTAs executes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.ptx.instruction import Register

Array = NDArray[Any]
Index = slice | NDArray[np.intp]

WARP = 32
POISON_BYTE = 0xFF
"""Uninitialised memory and registers hold this byte: a NaN in every float type, -1 in every integer."""

REGISTER_BYTES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16,
}  # fmt: skip
"""Bytes of every PTX register type; ``pred`` is a NumPy bool."""


def register_bytes(type_name: str) -> int:
    """Bytes of a register of a type; 0 of a predicate."""
    return 0 if type_name == "pred" else REGISTER_BYTES[type_name]


_BLOCK_REGISTERS, _BLOCK_BYTES = 32, 1 << 18
"""Registers of a width that get their memory at once: so many, or as many as fit into so many bytes."""

_STORAGE: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}


class Active:
    """The lanes that execute one instruction together.

    Attributes:
        index: what selects them from a per-lane array: a slice, or a sorted array of lane numbers.
        count: how many they are.
    """

    __slots__ = ("_lanes", "_warp_count", "count", "index")

    def __init__(self, index: Index, count: int) -> None:
        self.index = index
        self.count = count
        self._warp_count = -1
        self._lanes: NDArray[np.intp] | None = None

    @staticmethod
    def of(lanes: NDArray[np.intp]) -> Active:
        """The given lanes, sorted and distinct; a contiguous run becomes a slice."""
        count = len(lanes)
        if count and int(lanes[-1]) - int(lanes[0]) + 1 == count:
            return Active(slice(int(lanes[0]), int(lanes[-1]) + 1), count)
        return Active(lanes, count)

    @property
    def lanes(self) -> NDArray[np.intp]:
        """The lane numbers as an array."""
        if self._lanes is None:
            index = self.index
            self._lanes = np.arange(index.start, index.stop, dtype=np.intp) if isinstance(index, slice) else index
        return self._lanes

    @property
    def warp_count(self) -> int:
        """Warps that have at least one lane here."""
        if self._warp_count < 0:
            index = self.index
            if isinstance(index, slice):
                self._warp_count = (index.stop - 1) // WARP - index.start // WARP + 1 if self.count else 0
            else:
                self._warp_count = int(np.count_nonzero(np.diff(index // WARP))) + 1 if self.count else 0
        return self._warp_count

    @property
    def whole_warps(self) -> bool:
        """Whether they are all lanes of some warps."""
        if self.count % WARP:
            return False
        index = self.index
        if isinstance(index, slice):
            return bool(index.start % WARP == 0)
        first = index[::WARP]
        return not (first % WARP).any() and bool((first + (WARP - 1) == index[WARP - 1 :: WARP]).all())

    def where(self, mask: NDArray[np.bool_]) -> Active:
        """The lanes of this set for which ``mask`` (one element per active lane) holds."""
        return Active.of(self.lanes[mask])


class Unwritten:
    """Which lanes of a register hold an undefined value.

    Attributes:
        lanes: one flag each.
        some: whether any is set; once all are clear, keeping them so costs one look.
    """

    __slots__ = ("lanes", "some")

    def __init__(self, lane_capacity: int) -> None:
        self.lanes: NDArray[np.bool_] = np.ones(lane_capacity, dtype=np.bool_)
        self.some = True

    def set(self, active: Active, unwritten: NDArray[np.bool_] | None) -> None:
        """One flag per active lane; None for none set."""
        if unwritten is not None:
            self.lanes[active.index] = unwritten
            self.some = True
        elif self.some:
            self.lanes[active.index] = False
            self.some = bool(self.lanes.any())

    def among(self, active: Active) -> NDArray[np.bool_] | None:
        """The flags of the active lanes, or None if none of them is set."""
        if not self.some:
            return None
        flags = self.lanes[active.index]
        return flags if flags.any() else None


class RegisterFile:
    """One array per PTX register, of its width, over all lanes; made when first asked for, full of poison.

    Args:
        lane_capacity: lanes of a full wave.
        slots: of registers that share an array with others of their width, the number of that array
            (`register_slots`).

    Attributes:
        at_start_of_wave: called by `poison`, with the lanes that have a thread.
        readers: by name and type, what reads a register as that type, once an instruction has asked for it.
        writers: likewise, what writes it.
        shadows: what else is kept of registers, in arrays over all lanes; ``restored`` is called when values of these
            have come back.
    """

    def __init__(self, lane_capacity: int, slots: Mapping[str, int] = MappingProxyType({})) -> None:
        self.lane_capacity = lane_capacity
        self._slots = slots
        self._shared: dict[int, Array] = {}
        self.readers: dict[tuple[str, np.dtype[Any]], Callable[[Active], Array]] = {}
        self.writers: dict[tuple[str, np.dtype[Any]], Callable[[Active, Array], None]] = {}
        self._arrays: dict[str, Array] = {}
        self._blocks: list[Array] = []
        self._free: dict[int, list[Array]] = {}
        self.at_start_of_wave: Callable[[NDArray[np.bool_]], None] = lambda live: None
        self.shadows: list[Array] = []
        self.restored: Callable[[], None] = lambda: None
        self._used = False

    def array(self, register: Register) -> Array:
        """The storage of ``register``: unsigned of its width, bool for a predicate, (lanes, 2) uint64 for b128."""
        found = self._arrays.get(register.name)
        if found is None:
            slot = self._slots.get(register.name)
            found = None if slot is None else self._shared.get(slot)
            if found is None:
                found = self._free_array(register.type)
            self._arrays[register.name] = found
            if slot is not None:
                self._shared[slot] = found
        return found

    def kept(self) -> list[Array]:
        """All that is known of the registers, as arrays over all lanes."""
        own = (array for name, array in self._arrays.items() if name not in self._slots)
        return [*own, *self._shared.values(), *self.shadows]

    def _free_array(self, type_name: str) -> Array:
        """An array of a block that is full of poison; there is one block after the other for each width."""
        size = register_bytes(type_name)
        free = self._free.get(size)
        if not free:
            lanes = (self.lane_capacity, 2) if size == 16 else (self.lane_capacity,)
            count = max(1, min(_BLOCK_REGISTERS, _BLOCK_BYTES // (max(size, 1) * self.lane_capacity)))
            if size == 0:
                block: Array = np.zeros((count, *lanes), dtype=np.bool_)
            else:
                block = np.empty((count, *lanes), dtype=_STORAGE[min(size, 8)])
                block.view(np.uint8).fill(POISON_BYTE)
            self._blocks.append(block)
            free = self._free[size] = list(block)
        return free.pop()

    def poison(self, live: NDArray[np.bool_]) -> None:
        """Forget every value, as at the start of a new wave of CTAs whose ``live`` lanes have a thread."""
        self.at_start_of_wave(live)
        for block in self._blocks if self._used else ():  # new ones are full of poison
            block.view(np.uint8).fill(0 if block.dtype == np.bool_ else POISON_BYTE)
        self._used = True
