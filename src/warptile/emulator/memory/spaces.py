"""State spaces as byte arrays with a shadow byte each: mapped, initialized, written, in flight."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import POISON_BYTE, Array
from warptile.emulator.memory.undefined_copies import UndefinedCopy

PARAMETERS = "kernel parameters"
"""The allocation that holds the arguments of a launch."""

GUARD_BYTES = 256
"""Every global buffer starts at a multiple of this and is followed by at least as many bytes that belong to nobody."""

MAPPED, INITIALISED, WRITTEN, IN_FLIGHT, MBARRIER, COPIED, PARTLY = 1, 2, 4, 8, 16, 32, 64
"""Shadow bits of a byte: it may be accessed; it holds a value; the kernel wrote it; an asynchronous copy will; it is
part of an mbarrier, which only `mbarrier` instructions may access. Of one that holds no value: a kernel has copied that
here, and not as padding; some of its bits are defined, those of a bit field."""

WORD: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
"""The type of a word of so many bytes; complex128 stands for 16."""

Offsets = NDArray[np.int64]

_REMEMBERED = 256


def room(size: int) -> int:
    """Bytes of an allocation with the band behind it."""
    return -(-size // GUARD_BYTES) * GUARD_BYTES + GUARD_BYTES


class Space:
    """Bytes and their shadow. An access is a power of two of up to 16 bytes, at a multiple of its size."""

    def __init__(self, name: str, size_bytes: int) -> None:
        self.name = name
        self._back(size_bytes)

    def _back(self, size_bytes: int) -> None:
        """New arrays of zeros for data and shadow, which take no memory before they are touched."""
        chunks = -(-max(size_bytes, 1) // 16)
        # Backed by 16-byte elements so that every wider view is aligned.
        self.data: NDArray[np.uint8] = np.zeros(chunks, dtype=np.complex128).view(np.uint8)
        self.shadow: NDArray[np.uint8] = np.zeros(chunks, dtype=np.complex128).view(np.uint8)
        self._defined: NDArray[np.uint8] | None = None
        self._data: dict[int, Array] = {size: self.data.view(word) for size, word in WORD.items()}
        self._shadow: dict[int, Array] = {size: self.shadow.view(word) for size, word in WORD.items() if size <= 8}

    def reset(self, shadow: int) -> None:
        """Poison every byte and set the whole shadow."""
        self.data.fill(POISON_BYTE)
        self.shadow.fill(shadow)

    def words(self, size: int) -> Array:
        """All bytes as unsigned integers of ``size`` bytes (complex128 stands for 16): a view."""
        return self._data[size]

    def gather(self, offsets: Offsets, size: int) -> Array:
        """Elements of ``size`` bytes as unsigned integers (complex128 stands for 16 raw bytes)."""
        words: Array = self._data[size][offsets >> (size.bit_length() - 1)]
        return words

    def scatter(self, offsets: Offsets, size: int, words: Array) -> None:
        """Store elements of ``size`` bytes; of several to one place the last lane's stays."""
        self._data[size][offsets >> (size.bit_length() - 1)] = words

    def lacks(self, offsets: Offsets, size: int, bits: int, unwanted: int = 0) -> NDArray[np.bool_]:
        """For each element: does some byte lack one of ``bits`` or have one of ``unwanted``?"""
        part = min(size, 8)
        word = WORD[part]
        mask = word(int.from_bytes(bytes([bits | unwanted]) * part, "little"))
        want = word(int.from_bytes(bytes([bits]) * part, "little"))
        table = self._shadow[part]
        first = offsets >> (part.bit_length() - 1)
        missing: NDArray[np.bool_] = (table[first] & mask) != want
        if size == 16:
            missing |= (table[first + 1] & mask) != want
        return missing

    def forget(self, places: Offsets, defined: NDArray[np.uint8] | None = None) -> None:
        """Bytes that have just been written hold nothing that is defined, but for bits that are set in ``defined``."""
        self.shadow[places] &= np.uint8(0xFF & ~INITIALISED)
        if defined is None or not defined.any():
            return
        if self._defined is None:
            self._defined = np.zeros(len(self.data), np.uint8)
        some = defined != 0
        self._defined[places[some]] = defined[some]
        self.shadow[places[some]] |= np.uint8(PARTLY)

    def defined_bits(self, places: Offsets) -> NDArray[np.uint8]:
        """Of bytes that hold no value, the bits that are defined all the same."""
        if self._defined is None:
            return np.zeros(places.shape, np.uint8)
        bits: NDArray[np.uint8] = np.where(self.shadow[places] & PARTLY, self._defined[places], np.uint8(0))
        return bits

    def move(self, target: Offsets | slice, source: Offsets | slice) -> None:
        """Copy bytes, and what is known of them."""
        for array in (self.data, self.shadow, self._defined):
            if array is not None:
                array[target] = array[source].copy()

    def mark(self, offsets: Offsets, size: int, bits: int) -> None:
        """Set the shadow of each element to exactly ``bits``."""
        part = min(size, 8)
        word = WORD[part](int.from_bytes(bytes([bits]) * part, "little"))
        first = offsets >> (part.bit_length() - 1)
        self._shadow[part][first] = word
        if size == 16:
            self._shadow[part][first + 1] = word


@dataclass
class GlobalBuffer:
    """One buffer, constant or parameter block in global memory, by offsets into the space.

    Attributes:
        initialised: every byte of it holds a value.
        padded: what was not initialised at first lies between or behind the rows of an operand.
        read_by_host: the host reads all of it after the launch, without a call that could be checked.
        touched: since the last launch began it has been made, or something has been written to it.
        padding_from, value_from: the last store here of what nothing had written, as padding and as a value.
    """

    name: str
    start: int
    size: int
    writable: bool
    initialised: bool
    padded: bool = False
    read_by_host: bool = False
    touched: bool = True
    padding_from: UndefinedCopy | None = None
    value_from: UndefinedCopy | None = None


@dataclass(frozen=True)
class SpaceSnapshot:
    """What `GlobalSpace.snapshot` keeps."""

    data: NDArray[np.uint8]
    shadow: NDArray[np.uint8]
    defined: NDArray[np.uint8] | None
    allocations: tuple[GlobalBuffer, ...]
    freed: tuple[GlobalBuffer, ...]


@dataclass(frozen=True)
class SpaceUndo:
    """What `GlobalSpace.remember` keeps: of allocations that are written to later, what they held.

    Attributes:
        top: end of the last allocation.
        saved: by the start of an allocation, its bytes, their shadow, and which of their bits are defined.
    """

    top: int
    allocations: tuple[GlobalBuffer, ...]
    freed: tuple[GlobalBuffer, ...]
    saved: dict[int, tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8] | None]]


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _overlap(one: GlobalBuffer, other: GlobalBuffer) -> bool:
    return one.start < other.start + other.size and other.start < one.start + one.size


class GlobalSpace(Space):
    """Global memory: named allocations, by address, with bands of unmapped bytes between them.

    Attributes:
        allocations: by address.
        changes: how often allocations have been made, ended or moved.
        freed: the last ones that were freed, for messages.
    """

    def __init__(self, size_bytes: int = 0) -> None:
        """Room for allocations of ``size_bytes`` in all; more is made when it is needed."""
        self.allocations: list[GlobalBuffer] = []
        self.freed: deque[GlobalBuffer] = deque(maxlen=_REMEMBERED)
        self._starts: list[int] = []
        self._names: dict[str, GlobalBuffer] = {}
        self._top = GUARD_BYTES
        self._kept: dict[int, GlobalBuffer] = {}
        self._undo: SpaceUndo | None = None
        self.changes = 0
        super().__init__("global", GUARD_BYTES + size_bytes)

    def allocate(self, name: str, size: int, lead: int = 0, alignment: int = GUARD_BYTES) -> GlobalBuffer:
        """A new allocation, full of poison, that begins ``lead`` bytes behind a multiple of ``alignment``, which is one
        of `GUARD_BYTES`. It may move the arrays of the space: never while a kernel runs.

        Memory that was freed is used again when there is no other room, so that an access to it is noticed.
        """
        place = self._place(room(lead + size), alignment)
        if place is None:
            place = len(self.allocations), _up(self._end(len(self.allocations)), alignment)
            self._grow(max(place[1] + room(lead + size), 2 * len(self.data)))
        return self._allocate(name, *place, size, lead)

    def allocate_in_place(self, name: str, size: int, alignment: int) -> GlobalBuffer | None:
        """A new allocation at a multiple of ``alignment`` and of `GUARD_BYTES`; None if the arrays have no room."""
        place = self._place(room(size), max(alignment, GUARD_BYTES))
        return None if place is None else self._allocate(name, *place, size, 0)

    def reserve(self, size: int) -> None:
        """Make room for ``size`` bytes that `allocate_in_place` shall find. It may move the arrays."""
        if self._top + size > len(self.data):
            self._grow(self._top + size)

    def _grow(self, size: int) -> None:
        self.changes += 1
        data, shadow, defined = self.data, self.shadow, self._defined
        self._back(size)
        self.data[: len(data)], self.shadow[: len(shadow)] = data, shadow
        if defined is not None:
            self._defined = np.zeros(len(self.data), np.uint8)
            self._defined[: len(defined)] = defined

    def _place(self, needed: int, alignment: int) -> tuple[int, int] | None:
        """Among the allocations the number of a new one that needs so many bytes, and where it may begin."""
        start = _up(self._top, alignment)
        if start + needed <= len(self.data):
            return len(self.allocations), start
        ends = (*(first // GUARD_BYTES * GUARD_BYTES for first in self._starts), len(self.data))
        for i, end in enumerate(ends):
            start = _up(self._end(i), alignment)
            for kept in sorted(self._kept.values(), key=lambda each: each.start):
                if kept.start < start + needed and start < kept.start + room(kept.size):
                    start = _up(kept.start + room(kept.size), alignment)
            if start + needed <= end:
                return i, start
        return None

    def allocate_again(self, start: int) -> GlobalBuffer:
        """The allocation that was freed at an offset and whose place was kept, as a new one."""
        kept = self._kept.pop(start)
        return self._allocate(kept.name, bisect_right(self._starts, start), start, kept.size, 0)

    def _allocate(self, name: str, position: int, start: int, size: int, lead: int) -> GlobalBuffer:
        assert name not in self._names, name
        self.changes += 1
        needed = room(lead + size)
        self._top = max(self._top, start + needed)
        start += lead
        made = GlobalBuffer(name, start, size, writable=True, initialised=False)
        self.allocations.insert(position, made)
        self._starts.insert(position, start)
        self._names[name] = made
        self.data[start : start + size] = POISON_BYTE
        self.shadow[start : start + size] = MAPPED
        if self.freed:
            self.freed = deque((gone for gone in self.freed if not _overlap(gone, made)), maxlen=_REMEMBERED)
        return made

    def forget(self, places: Offsets, defined: NDArray[np.uint8] | None = None) -> None:
        """Bytes that have just been written hold nothing that is defined, but for bits that are set in ``defined``."""
        super().forget(places, defined)
        for number in np.unique(self.numbers_around(places)).tolist():
            home = self.allocations[number]
            if home.initialised:
                home.initialised = False
                self.changes += 1

    def free(self, name: str, *, keep_place: bool = False) -> None:
        """End an allocation: its bytes are unmapped. Its place may be kept for `allocate_again`."""
        self.changes += 1
        gone = self._names.pop(name)
        self.touch(gone)
        position = bisect_right(self._starts, gone.start) - 1
        del self.allocations[position], self._starts[position]
        self.shadow[gone.start : gone.start + gone.size] = 0
        self.freed.append(gone)
        if keep_place:
            self._kept[gone.start] = gone

    def _end(self, position: int) -> int:
        """The first byte behind the allocation before ``position`` and the band behind it."""
        if not position:
            return GUARD_BYTES
        before = self.allocations[position - 1]
        lead = before.start % GUARD_BYTES
        return before.start - lead + room(lead + before.size)

    def snapshot(self) -> SpaceSnapshot:
        """The allocations, their bytes and their shadow, for `restore`."""
        defined = None if self._defined is None else self._defined[: self._top].copy()
        return SpaceSnapshot(
            self.data[: self._top].copy(), self.shadow[: self._top].copy(), defined, tuple(self.allocations),
            tuple(self.freed),
        )  # fmt: skip

    def remember(self) -> SpaceUndo:
        """The same for `restore`, but that bytes are kept when they are about to change: `touch` must be told."""
        self._undo = SpaceUndo(self._top, tuple(self.allocations), tuple(self.freed), {})
        for home in self.allocations:
            home.touched = False
        self.changes += 1
        return self._undo

    def end_undo(self) -> None:
        """What is written from now on need not be undone."""
        self._undo = None

    def touch(self, home: GlobalBuffer) -> None:
        """An allocation is about to be written to, or freed."""
        home.touched = True
        undo = self._undo
        if undo is None or home.start in undo.saved or not any(home is each for each in undo.allocations):
            return
        place = slice(home.start, home.start + home.size)
        defined = None if self._defined is None else self._defined[place].copy()
        undo.saved[home.start] = self.data[place].copy(), self.shadow[place].copy(), defined

    def restore(self, snapshot: SpaceSnapshot | SpaceUndo) -> None:
        """Undo what has been written, allocated and freed since."""
        self.changes += 1
        if isinstance(snapshot, SpaceUndo):
            kept = {id(each) for each in snapshot.allocations}
            for made in self.allocations:
                if id(made) not in kept:
                    self.shadow[made.start : made.start + made.size] = 0
            for start, (data, shadow, defined) in snapshot.saved.items():
                place = slice(start, start + len(data))
                self.data[place], self.shadow[place] = data, shadow
                if self._defined is not None and defined is not None:
                    self._defined[place] = defined
            top = snapshot.top
        else:
            top = len(snapshot.data)
            self.data[:top], self.shadow[:top] = snapshot.data, snapshot.shadow
            if self._defined is not None and snapshot.defined is not None:
                self._defined[:top] = snapshot.defined
        self.shadow[top : self._top] = 0
        self.allocations, self.freed = list(snapshot.allocations), deque(snapshot.freed, maxlen=_REMEMBERED)
        self._starts = [each.start for each in self.allocations]
        self._names = {each.name: each for each in self.allocations}
        self._top = top

    def named(self, name: str) -> GlobalBuffer:
        """The allocation called ``name``."""
        return self._names[name]

    def has(self, name: str) -> bool:
        """Whether there is an allocation called ``name``."""
        return name in self._names

    def freed_around(self, offset: int) -> GlobalBuffer | None:
        """The allocation that held a byte last and was freed."""
        return next((gone for gone in reversed(self.freed) if gone.start <= offset < gone.start + gone.size), None)

    def fill(self, name: str, content: NDArray[np.uint8] | bytes, *, writable: bool = True) -> None:
        """Initialise an allocation with ``content``, which has its size."""
        allocation = self.named(name)
        allocation.writable, allocation.initialised = writable, True
        raw = np.frombuffer(content, dtype=np.uint8)
        self.data[allocation.start : allocation.start + allocation.size] = raw
        self.shadow[allocation.start : allocation.start + allocation.size] = MAPPED | INITIALISED

    def content(self, name: str) -> NDArray[np.uint8]:
        """The bytes of an allocation (a view)."""
        allocation = self.named(name)
        return self.data[allocation.start : allocation.start + allocation.size]

    def around(self, offset: int) -> GlobalBuffer | None:
        """The last allocation that starts at or before ``offset``."""
        position = bisect_right(self._starts, offset) - 1
        return self.allocations[position] if position >= 0 else None

    def numbers_around(self, offsets: Offsets) -> NDArray[np.intp]:
        """The positions among ``allocations`` of those that some bytes lie in."""
        numbers: NDArray[np.intp] = np.searchsorted(np.array(self._starts, np.int64), offsets, side="right") - 1
        return numbers

    def nearest(self, offset: int) -> GlobalBuffer | None:
        """The allocation that a byte outside all of them is nearest to; None for one before the whole space, as of a
        null pointer."""
        if offset < 0:
            return None
        position = bisect_right(self._starts, offset)
        around = map(self._used, self.allocations[max(position - 1, 0) : position + 1])
        return min(around, key=lambda one: max(one.start - offset, offset - one.start - one.size), default=None)

    def _used(self, one: GlobalBuffer) -> GlobalBuffer:
        """An allocation with the size that kernels may access: of the parameters, those of the launch."""
        if one.name != PARAMETERS:
            return one
        mapped = np.flatnonzero(self.shadow[one.start : one.start + one.size])
        return replace(one, size=int(mapped[-1]) + 1 if mapped.size else 0)
