"""What machine code is told of memory: words of 64 bits, kept up to date between runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.checks.access_history import LONGEST, AccessHistory
from warptile.emulator.compiled_steps.loop_builder import address_of
from warptile.emulator.lanes import WARP

if TYPE_CHECKING:
    from warptile.emulator.machine import Machine

(SHARED_DATA, SHARED_SHADOW, SHARED_BYTES, SHARED_STRIDE, LOCAL_DATA, LOCAL_SHADOW, LOCAL_BYTES, LOCAL_STRIDE,
 GLOBAL_DATA, GLOBAL_SHADOW, LANES_PER_CTA, FIRST_THREAD, BUFFERS, BUFFER_COUNT, RACES, CLOCK, CTA_FLOOR, WARP_FLOOR,
 KNOWN, STARTS, KEYS, VALUES, KEY_STRIDE, SHARED_HISTORY, OFFSETS, LANE_NUMBERS, BANK_WORDS, BANK_COUNTS, MUST_HOLD,
 KNOWLEDGE, LOWEST, HIGHEST, GROUPS, WARPS, MISSING, MISSING_SHIFT, WITHIN_CTA, UNTOUCHED, FOUND, QUIET, LOG,
 LOG_ENTRIES, LOG_LANES, LOG_OFFSETS, LOG_CLOCKS, LOG_LENGTH, LOG_ROOM, WORDS) = range(48)  # fmt: skip
"""Words: addresses of bytes and shadows of each space, its bytes for a CTA or lane and how far those are apart; lanes
of a CTA; number of the thread in lane 0; the buffers of global memory and how many; whether races are looked for, then
the arrays of `VectorClocks`; the history of shared memory; room for the offsets and lanes of an access, and for
counting bank conflicts; whether bytes must hold a value to be read; whether any thread has a table of knowledge; of an
access to global memory its least and its largest offset; room for the ends and patterns of its warps, and how many they
are. After a refusal: the history that lacks the table of some length of places, or 0, and that length's logarithm.
Then whether shared memory is accessed by threads of its own CTA only. After a refusal: the words of the buffer that the
launch has not written to before, or 0. Of atomics: room for what they find; whether no thread has released anything, so
that they acquire and release nothing; the log of those that have been made, four words each (history, tag, bytes,
lanes), and how many they are; then the lane, the place and the clock of each lane of them, how many have been written,
and how many may be."""

LOG_LANE_ROOM = 1 << 16
"""Lanes whose atomics are logged, if a wave has no more, before the log is handed over."""

LONGEST_USED = 1 + LONGEST + 1
HISTORY_WORDS = LONGEST_USED + 1
"""Words of a history: the address of its ``shifts``, and of the table of each; 0 where there is none. Then that of its
``longest_used``."""

START, END, WRITABLE, INITIALISED, WRITERS, HISTORY, TOUCHED, BUFFER_WORDS = range(8)
"""Words of a buffer: its first byte and the one behind it, by offsets into global memory; whether it may be written and
whether all of it holds values; the address of its table of writers, or 0; the address of its history; whether the
launch has written to it before, so that what it held is kept."""


class MemoryState:
    """The words, and what they point to.

    Args:
        machine: whose memory it is.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        memory, geometry = machine.memory, machine.geometry
        lanes = geometry.lanes
        self.words: NDArray[np.int64] = np.zeros(WORDS, dtype=np.int64)
        self._rooms = (
            np.zeros(lanes, dtype=np.int64), np.zeros(lanes, dtype=np.int64),
            np.zeros(WARP * WARP * 4, dtype=np.int64), np.zeros(WARP, dtype=np.int64),
            np.zeros(2 * (lanes // WARP + 1), dtype=np.int64),
        )  # fmt: skip
        self._log: tuple[NDArray[Any], ...] = ()
        self._held: list[Any] = []
        self._histories: NDArray[np.int64] = np.zeros((1, HISTORY_WORDS), dtype=np.int64)
        self._buffers: NDArray[np.int64] = np.zeros((0, BUFFER_WORDS), dtype=np.int64)
        self._seen: tuple[int, ...] = ()
        words = self.words
        for first, each, size, stride in (
            (SHARED_DATA, memory.shared_space, memory.shared_bytes, memory.shared_stride),
            (LOCAL_DATA, memory.local_space, memory.local_bytes, memory.local_stride),
        ):
            words[first : first + 4] = address_of(each.data), address_of(each.shadow), size, stride
        words[LANES_PER_CTA] = geometry.lanes_per_cta
        words[[OFFSETS, LANE_NUMBERS, BANK_WORDS, BANK_COUNTS, GROUPS]] = [address_of(room) for room in self._rooms]
        words[WITHIN_CTA] = geometry.cluster_ctas == 1
        words[MUST_HOLD] = memory.check_uninitialised or memory.check_padding
        self.refresh()

    def refresh(self) -> None:
        """Look again at what the interpreter may have replaced: buffers, histories, and tables of knowledge."""
        memory, words = self._machine.memory, self.words
        space, races = memory.global_space, memory.races
        words[GLOBAL_DATA], words[GLOBAL_SHADOW] = address_of(space.data), address_of(space.shadow)
        words[FIRST_THREAD] = memory.first_thread
        # one more history than buffers: that of shared memory is the last
        histories: NDArray[np.int64] = np.zeros((len(space.allocations) + 1, HISTORY_WORDS), dtype=np.int64)
        buffers: NDArray[np.int64] = np.zeros((len(space.allocations), BUFFER_WORDS), dtype=np.int64)
        words[BUFFERS], words[BUFFER_COUNT] = address_of(buffers), len(buffers)
        words[SHARED_HISTORY] = address_of(histories[-1])
        held: list[Any] = [buffers, histories]
        for number, allocation in enumerate(space.allocations):
            writers = memory.writers.table(allocation.name) if memory.writers is not None else None
            buffers[number] = (
                allocation.start, allocation.start + allocation.size, allocation.writable, allocation.initialised,
                0 if writers is None else address_of(writers), address_of(histories[number]), allocation.touched,
            )  # fmt: skip
        if races is not None:
            clocks = races.clocks
            words[RACES], words[KEY_STRIDE], words[KNOWLEDGE] = 1, clocks.shape[1], len(clocks.keys) > 0
            arrays = (clocks.clock, clocks.cta_floor, clocks.warp_floor, clocks.known,
                      clocks.starts, clocks.keys, clocks.values)  # fmt: skip
            words[CLOCK : VALUES + 1] = [address_of(each) for each in arrays]
            held += arrays  # so that none that replaces one has its `id`
            for row, name in zip(histories, [*(each.name for each in space.allocations), "shared"], strict=True):
                history = races.history_of(name)
                if history is not None:
                    held.append(_write_history(row, history))
        self._held, self._histories, self._buffers = held, histories, buffers  # words hold addresses of these
        self._seen = self._version()

    def prepare_log(self) -> None:
        """Make room for atomics and their log."""
        lanes = len(self._rooms[0])
        room = max(LOG_LANE_ROOM, lanes)
        self._log = (
            np.zeros((room, 4), np.int64), np.zeros(room, np.int64), np.zeros(room, np.int64), np.zeros(room, np.int32),
            np.zeros(lanes, np.int64),
        )  # fmt: skip
        self.words[[LOG, LOG_LANES, LOG_OFFSETS, LOG_CLOCKS, FOUND]] = [address_of(each) for each in self._log]

    def look_at_flags(self) -> None:
        """Note whether atomics acquire and release nothing now, and how many may be logged."""
        races = self._machine.memory.races
        if races is not None:
            self.words[QUIET] = races.quiet
            self.words[LOG_ROOM] = min(len(self._log[1]), races.room_in_logs())

    def hand_over_log(self) -> None:
        """Log the atomics that have been made where the interpreter looks for them."""
        words, races, start = self.words, self._machine.memory.races, 0
        assert races is not None
        entries, *columns, _ = self._log
        for place, tag, size, count in entries[: int(words[LOG_ENTRIES])].tolist():
            history = races.history_of(self._name_of(place))
            assert history is not None
            lanes, offsets, clock = (each[start : start + count].copy() for each in columns)
            history.keep(tag, size, lanes, offsets, clock)
            start += count
        words[LOG_ENTRIES] = words[LOG_LENGTH] = 0

    def _name_of(self, history: int) -> str:
        """Whose history has its words at an address."""
        from_end = (history - int(self.words[SHARED_HISTORY])) // (8 * HISTORY_WORDS)
        return self._machine.memory.global_space.allocations[from_end].name if from_end else "shared"

    def make_missing(self) -> bool:
        """Make the table that a refused access needs, or keep what its buffer holds; False if it was refused for
        another reason."""
        untouched = int(self.words[UNTOUCHED])
        if untouched:
            self.words[UNTOUCHED] = 0
            number = (untouched - int(self.words[BUFFERS])) // (8 * BUFFER_WORDS)
            space = self._machine.memory.global_space
            space.touch(space.allocations[number])
            self._buffers[number, TOUCHED] = 1
            return True
        missing, races = int(self.words[MISSING]), self._machine.memory.races
        if not missing or races is None:
            return False
        self.words[MISSING] = 0
        from_end = (missing - int(self.words[SHARED_HISTORY])) // (8 * HISTORY_WORDS)
        name = self._name_of(missing)
        races.expect(name, int(self.words[MISSING_SHIFT]))
        history = races.history_of(name)
        if history is None or not self.up_to_date():
            self.refresh()
        else:
            self._held.append(_write_history(self._histories[from_end - 1], history))
        return True

    def _version(self) -> tuple[int, ...]:
        """Another one after every change of the buffers and of the tables of knowledge."""
        space, races = self._machine.memory.global_space, self._machine.memory.races
        if races is None:
            return (space.changes,)
        clocks = races.clocks
        return space.changes, id(clocks.starts), id(clocks.keys), id(clocks.values)

    def up_to_date(self) -> bool:
        """Whether buffers and tables of knowledge are still those of the last `refresh`."""
        return self._version() == self._seen


def _write_history(row: NDArray[np.int64], history: AccessHistory) -> Any:
    """Put the addresses of a history's arrays into its words; gives the arrays, which must be held."""
    row[0] = address_of(history.shifts)
    row[1:LONGEST_USED] = [address_of(table) if len(table) else 0 for table in history.tables]
    row[LONGEST_USED] = address_of(history.longest_used)
    return history.shifts, list(history.tables), history.longest_used
