"""All state spaces of a wave: addresses, and the checks on every access.

Addresses. Global memory (with constants, parameters and the caller's buffers) starts at `GLOBAL_BASE`. Shared and local
memory are windows of the generic address space, one copy per CTA and per lane: an address in a window is an offset
into the executing lane's own copy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.checks.output_writers import OutputWriters
from warptile.emulator.findings import Findings
from warptile.emulator.lanes import Active, Array
from warptile.emulator.memory.cluster_memory import RANK_SHIFT, ClusterSharedMemory
from warptile.emulator.memory.spaces import (
    IN_FLIGHT,
    INITIALISED,
    MAPPED,
    MBARRIER,
    WORD,
    WRITTEN,
    GlobalSpace,
    Offsets,
    Space,
)
from warptile.errors import IllegalAddress, MbarrierMisuse, MisalignedAccess, UninitializedRead
from warptile.ptx.instruction import Instruction

if TYPE_CHECKING:
    from warptile.emulator.async_ops.concurrent_streams import ConcurrentStreams
    from warptile.emulator.checks.races import RaceChecker
    from warptile.emulator.checks.undefined_bits import UndefinedMemory
    from warptile.emulator.machine import LaunchGeometry
    from warptile.emulator.sync.dependent_launch import PreviousLaunch

GLOBAL_BASE = 0x7F00_0000_0000
SHARED_WINDOW = 0x7E00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
WINDOW_BYTES = 1 << 32
NEAR_NULL = 1 << 16
"""Addresses below are told to be of a null pointer, perhaps with an index."""


LOADS = frozenset({"ld", "ldu", "ldmatrix", "wmma", "wgmma"})
"""Instructions whose results may be undefined, which is no bug until something depends on them."""


class UndefinedLoad(Exception):
    """A load, or a shuffle, has met a value that nothing has written, and its result is not followed.

    The launch has to be run again, with ``space`` in `Memory.follows_loads`.

    Attributes:
        space: ``"global"``, or ``"shared"`` for shared memory and shuffles.
    """

    def __init__(self, space: str) -> None:
        super().__init__(space)
        self.space = space


def is_followed(instruction: Instruction, follows_loads: frozenset[str]) -> bool:
    """Whether what a load returns is followed where nothing has written it; that of local memory always is."""
    words = instruction.modifiers
    if "local" in words:
        return True
    if "global" in words:
        return "global" in follows_loads
    return bool(follows_loads) and "const" not in words


class Memory:
    """All state spaces of one wave of CTAs, and the checks on every access."""

    def __init__(
        self,
        global_space: GlobalSpace,
        geometry: LaunchGeometry,
        *,
        kernel: str,
        shared_bytes: int,
        local_bytes: int,
        check_uninitialised: bool = True,
        check_padding: bool = True,
        check_reuse: bool = True,
        follows_loads: frozenset[str] = frozenset(),
        findings: Findings | None = None,
    ) -> None:
        """Arguments beside sizes say what is checked.

        Values that nothing has written are followed (`checks.uninitialized_registers`) from loads of the spaces in
        ``follows_loads``, which are ``"shared"``, for shuffles too, and ``"global"``; any other load that meets one is
        an `UndefinedLoad`. ``met_undefined`` is set by loads and copies that meet an undefined value.
        """
        self.kernel = kernel
        self.findings = Findings(collect=False, schedule="latest") if findings is None else findings
        self.thread_name = geometry.name
        self.check_uninitialised = check_uninitialised
        self.check_padding = check_padding
        self.check_reuse = check_reuse
        self.follows_loads = follows_loads
        self.global_space = global_space
        self.shared_bytes = shared_bytes
        self.shared_stride = -(-shared_bytes // 128) * 128
        self.zeroed_shared = slice(0)  # bytes of a CTA's shared memory that are zero at its start
        self.local_bytes = local_bytes
        self.local_stride = -(-local_bytes // 16) * 16
        lanes = geometry.lanes
        self.shared_space = Space("shared", geometry.ctas * self.shared_stride)
        self.local_space = Space("local", lanes * self.local_stride)
        self.shared_origin = (np.arange(lanes, dtype=np.int64) // geometry.lanes_per_cta) * self.shared_stride
        self.local_origin = np.arange(lanes, dtype=np.int64) * self.local_stride
        self.writers: OutputWriters | None = None
        self.first_thread = 0
        self.shared_variables: list[tuple[int, str]] = []
        self.met_undefined = False
        self.undefined: UndefinedMemory | None = None
        self.copy_into: Callable[[int, int], Instruction | None] | None = None
        self.races: RaceChecker | None = None
        self.previous: PreviousLaunch | None = None
        self.streams: ConcurrentStreams | None = None
        self.has_mbarriers = False
        self.overwrite_mbarriers: Callable[[Instruction, int, int, int], None] | None = None
        self.clustered = geometry.cluster_ctas > 1
        ctas = np.arange(lanes, dtype=np.int64) // geometry.lanes_per_cta
        self.shared_base = ctas % geometry.cluster_ctas << RANK_SHIFT
        """Of each lane, the shared address at which its CTA's memory begins."""
        self.peers = ClusterSharedMemory(
            geometry, kernel=kernel, shared_bytes=shared_bytes, shared_stride=self.shared_stride
        )

    def new_wave(self) -> None:
        """Shared and local memory as a new set of CTAs finds them: mapped and full of poison."""
        if self.undefined is not None:
            self.undefined.start_wave()
        self.shared_space.reset(MAPPED)
        self.local_space.reset(MAPPED)
        if self.zeroed_shared.stop:
            for array, value in ((self.shared_space.data, 0), (self.shared_space.shadow, MAPPED | INITIALISED)):
                array.reshape(-1, self.shared_stride)[:, self.zeroed_shared] = value

    # -- addresses ---------------------------------------------------------------------------------------------

    def resolve(
        self, instruction: Instruction, active: Active, space: str, addresses: Array, size: int
    ) -> tuple[Space, Offsets]:
        """Addresses (one per active lane, or one row of several per lane) to a space and offsets into it.

        All lanes must fall into one space; `split` separates a mixed generic access first.
        """
        signed = addresses.astype(np.int64)
        if space == "generic":
            space, signed = self._generic(instruction, active, signed)
        if space == "shared":
            if self.clustered:
                return self.shared_space, self._clustered(instruction, active, signed, size)
            return self.shared_space, self._windowed(
                instruction, active, signed, size, "shared", self.shared_bytes, self.shared_origin
            )
        if space == "local":
            return self.local_space, self._windowed(
                instruction, active, signed, size, "local", self.local_bytes, self.local_origin
            )
        offsets = signed - GLOBAL_BASE
        self._aligned(instruction, active, signed, size)
        return self.global_space, offsets

    def space_of(self, addresses: Array) -> NDArray[np.int8]:
        """Which space each generic address belongs to: 0 global, 1 shared, 2 local."""
        signed = addresses.astype(np.int64)
        shared = (signed >= SHARED_WINDOW) & (signed < SHARED_WINDOW + WINDOW_BYTES)
        local = (signed >= LOCAL_WINDOW) & (signed < LOCAL_WINDOW + WINDOW_BYTES)
        return np.where(shared, 1, np.where(local, 2, 0)).astype(np.int8)

    def _generic(self, instruction: Instruction, active: Active, signed: Offsets) -> tuple[str, Offsets]:
        lowest, highest = int(signed.min()), int(signed.max())
        for name, base in (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW)):
            if base <= lowest and highest < base + WINDOW_BYTES:
                return name, signed - base
        if lowest >= GLOBAL_BASE:
            return "global", signed
        kinds = self.space_of(signed)
        if len(np.unique(kinds)) > 1:
            raise IllegalAddress(
                f"{instruction.text}: one access with lanes in different state spaces", **self._where(instruction)
            )
        raise IllegalAddress(
            f"{instruction.text}: {self._thread_of(active, signed, signed == lowest)} accesses {lowest:#x}, "
            "which lies in no buffer",
            **self._where(instruction),
        )

    def _windowed(
        self,
        instruction: Instruction,
        active: Active,
        offsets: Offsets,
        size: int,
        name: str,
        limit: int,
        origin: Offsets,
    ) -> Offsets:
        if offsets.size and (int(offsets.min()) < 0 or int(offsets.max()) + size > limit):
            bad = (offsets < 0) | (offsets + size > limit)
            value = int(offsets[bad].flat[0])
            raise IllegalAddress(
                f"{instruction.text}: {self._thread_of(active, offsets, bad)} accesses bytes {value}.."
                f"{value + size - 1} of {limit} bytes of {name} memory{self._near(value) if name == 'shared' else ''}",
                **self._where(instruction),
            )
        self._aligned(instruction, active, offsets, size)
        start = origin[active.index]
        return offsets + (start if offsets.ndim == 1 else start.reshape(-1, *(1,) * (offsets.ndim - 1)))

    def _near(self, offset: int) -> str:
        """The shared variable before a byte, and how far behind its begin that is, for messages."""
        before = [(start, name) for start, name in self.shared_variables if start <= offset]
        return f", at {before[-1][1]}+{offset - before[-1][0]}" if before else ""

    def _clustered(self, instruction: Instruction, active: Active, addresses: Offsets, size: int) -> Offsets:
        """Shared addresses in a cluster: most lie in the lane's own CTA, the others are its peers'."""
        base = self.shared_base[active.index].reshape(-1, *(1,) * (addresses.ndim - 1))
        own = addresses - base
        if own.size and int(own.min()) >= 0 and int(own.max()) + size <= self.shared_bytes:
            return self._windowed(instruction, active, own, size, "shared", self.shared_bytes, self.shared_origin)
        return self.peers.locate(instruction, active, addresses, size)

    def _aligned(self, instruction: Instruction, active: Active, addresses: Offsets, size: int) -> None:
        if size > 1 and np.bitwise_or.reduce(addresses, axis=None) & (size - 1):
            bad = (addresses & (size - 1)) != 0
            raise MisalignedAccess(
                f"{instruction.text}: {self._thread_of(active, addresses, bad)} accesses address "
                f"{int(addresses[bad].flat[0]):#x}, which is not a multiple of {size} bytes",
                **self._where(instruction),
            )

    def thread(self, lane: int | np.intp) -> str:
        """The thread in a lane of this wave, by its indices."""
        return self.thread_name(self.first_thread + int(lane))

    def _thread_of(self, active: Active, addresses: Offsets, bad: NDArray[np.bool_]) -> str:
        """The first thread with a ``bad`` address."""
        rows = bad.reshape(len(addresses), -1).any(axis=1)
        return self.thread(active.lanes[np.argmax(rows)])

    def _where(self, instruction: Instruction) -> dict[str, Any]:
        return {"kernel": self.kernel, "location": instruction.location}

    # -- accesses ----------------------------------------------------------------------------------------------

    def load(self, instruction: Instruction, active: Active, space: str, addresses: Array, size: int) -> Array:
        """``size`` bytes for each address, as unsigned integers (complex128 stands for 16 bytes): checked."""
        if space == "generic":
            parts = self.split(active, addresses)
            if parts is not None:
                result: Array = np.empty(addresses.shape, dtype=WORD[size])
                for mask in parts:
                    result[mask] = self.load(instruction, active.where(mask), space, addresses[mask], size)
                return result
        where, offsets = self.resolve(instruction, active, space, addresses, size)
        self.check_read(instruction, active, where, offsets, size)
        if self.races is not None:
            self.races.read(instruction, active, where, offsets, size)
        return where.gather(offsets, size)

    def store(
        self, instruction: Instruction, active: Active, space: str, addresses: Array, words: Array, size: int
    ) -> None:
        """Store one word of ``size`` bytes at each address: checked, and remembered as written."""
        if space == "generic":
            parts = self.split(active, addresses)
            if parts is not None:
                for mask in parts:
                    self.store(instruction, active.where(mask), space, addresses[mask], words[mask], size)
                return
        where, offsets = self.resolve(instruction, active, space, addresses, size)
        self.check_write(instruction, active, where, offsets, size, words)
        if self.races is not None:
            self.races.write(instruction, active, where, offsets, size, words)
        where.scatter(offsets, size, words)
        where.mark(offsets, size, MAPPED | INITIALISED | WRITTEN)

    def shared_words(self, instruction: Instruction, offsets: Offsets, size: int) -> Array:
        """Words of shared memory that have been checked already."""
        return self.shared_space.gather(offsets, size)

    def split(self, active: Active, addresses: Array) -> list[NDArray[np.bool_]] | None:
        """Masks of the lanes of each space, when a generic access has lanes in several; else None."""
        if len(addresses) < 2 or int(addresses.min()) >= GLOBAL_BASE:
            return None
        first = addresses.reshape(len(addresses), -1)[:, 0]
        kinds = self.space_of(first)
        found = np.unique(kinds)
        return None if len(found) < 2 else [kinds == kind for kind in found]

    def check_read(
        self,
        instruction: Instruction,
        active: Active,
        where: Space,
        offsets: Offsets,
        size: int,
        *,
        copies: bool = False,
    ) -> None:
        """Raise unless every byte is mapped and holds a value that has arrived.

        What nothing has written is no error for loads, nor for an instruction that only ``copies``, which then has to
        call `carry_undefined`: it is one where something depends on it.
        """
        if isinstance(where, GlobalSpace) and offsets.size:
            if self.previous is not None:
                self.previous.touch(instruction, active, where, offsets)
            lowest, highest = int(offsets.min()), int(offsets.max()) + size
            home = where.around(lowest)
            if home is not None and highest <= home.start + home.size and home.initialised:
                return
            if lowest < 0 or highest > len(where.shadow):
                self._outside(instruction, active, where, offsets, size, _unmapped(where, offsets, size))
        missing = where.lacks(offsets, size, MAPPED | INITIALISED, unwanted=IN_FLIGHT)
        if not missing.any():
            return
        unmapped = where.lacks(offsets, size, MAPPED)
        if unmapped.any():
            self._outside(instruction, active, where, offsets, size, unmapped)
        self._check_mbarriers(instruction, active, where, offsets, size, "mbarriers")
        pending = where.lacks(offsets, size, MAPPED, unwanted=IN_FLIGHT)
        if pending.any():
            copy = self._copy_into(where, int(offsets[pending].flat[0]), size)
            error = UninitializedRead(
                f"{instruction.text}: {self._thread_of(active, offsets, pending)} reads {where.name} memory at "
                f"{self._describe(where, offsets, pending)} while an asynchronous copy into it "
                f"has not been waited for{f': it was started at {copy.location}' if copy else ''}",
                first=copy.location if copy else None,
                **self._where(instruction),
            )
            self.findings.report(error, "in-flight")
            return
        home = where.around(int(offsets[missing].flat[0])) if isinstance(where, GlobalSpace) else None
        padding = home is not None and home.padded
        if not (self.check_padding if padding else self.check_uninitialised):
            return
        if copies and not padding:
            self.met_undefined = True
            return
        if instruction.opcode in LOADS and not padding:
            space = "global" if where is self.global_space else "shared"
            self.meet_undefined(space, follows=is_followed(instruction, self.follows_loads))
            return
        error = UninitializedRead(
            f"{instruction.text}: {self._thread_of(active, offsets, missing)} reads {where.name} memory at "
            f"{self._describe(where, offsets, missing)}, which nothing has written",
            **self._where(instruction),
        )
        self.findings.report(error, "padding" if padding else "uninitialised")

    def meet_undefined(self, space: str, *, follows: bool) -> None:
        """A result is undefined, which is no bug until something depends on it.

        Args:
            space: as of `UndefinedLoad`.
            follows: the result is followed.

        Raises:
            UndefinedLoad: it is not.
        """
        if self.check_uninitialised and not follows:
            raise UndefinedLoad(space)
        self.met_undefined = True

    def undefined_bytes(self, where: Space, places: Offsets) -> NDArray[np.bool_]:
        """Which of some bytes nothing has written, or something that was undefined.

        What lies between the rows of an operand counts as written: its reads are reported as such.
        """
        flags: NDArray[np.bool_] = (where.shadow[places] & (INITIALISED | IN_FLIGHT | MBARRIER)) == 0
        if isinstance(where, GlobalSpace) and flags.any():
            for home in where.allocations:
                if home.padded:
                    flags &= (places < home.start) | (places >= home.start + home.size)
        return flags

    def carry_undefined(
        self, instruction: Instruction, lane: int, source: tuple[Space, Offsets], target: tuple[Space, Offsets]
    ) -> None:
        """An asynchronous copy of a lane has written the bytes of ``target`` with those of ``source``, which were
        undefined."""
        (space, places), (where, held) = source, target
        where.forget(held, space.defined_bits(places))
        if self.undefined is not None and held.size:
            self.undefined.note_copy(instruction, self.thread(lane), space, places, where, held)

    def _copy_into(self, where: Space, offset: int, size: int) -> Instruction | None:
        """The asynchronous copy that will write bytes, where it is known."""
        if where is self.global_space and self.streams is not None:
            return self.streams.copy_into(offset)
        return self.copy_into(offset, size) if self.copy_into is not None else None

    def check_write(
        self, instruction: Instruction, active: Active, where: Space, offsets: Offsets, size: int, words: Array | None
    ) -> None:
        """Raise unless every byte is mapped and writable; note writes by different threads that disagree."""
        if (
            where is self.shared_space
            and self.has_mbarriers
            and (not self.check_reuse or self._check_mbarriers(instruction, active, where, offsets, size, "reuse"))
        ):
            self._end_mbarriers(instruction, active, where, offsets, size)
        if not isinstance(where, GlobalSpace) or not offsets.size:
            return
        if self.previous is not None:
            self.previous.touch(instruction, active, where, offsets)
        lowest, highest = int(offsets.min()), int(offsets.max()) + size
        if lowest < 0 or highest > len(where.shadow):
            self._outside(instruction, active, where, offsets, size, _unmapped(where, offsets, size))
        home = where.around(lowest)
        if home is None or highest > home.start + home.size:
            unmapped = where.lacks(offsets, size, MAPPED)
            if unmapped.any():
                self._outside(instruction, active, where, offsets, size, unmapped)
            homes = {id(a): a for a in (where.around(int(offset)) for offset in offsets.flat) if a is not None}
            targets = list(homes.values())
        else:
            targets = [home]
        for target in targets:
            if not target.writable:
                raise IllegalAddress(
                    f"{instruction.text}: writes {target.name}, which is read-only",
                    fix="give the kernel memory that it may write, or write to another buffer",
                    **self._where(instruction),
                )
            if not target.touched:
                where.touch(target)
            if words is not None and self.writers is not None and self.writers.follow(target.name):
                inside = (offsets >= target.start) & (offsets < target.start + target.size)
                threads = (self.first_thread + active.lanes).reshape(-1, *(1,) * (offsets.ndim - 1))
                writers, given = (np.broadcast_to(each, offsets.shape)[inside] for each in (threads, words))
                written = offsets[inside]
                place = written - target.start
                held = partial(where.gather, written, size)
                self.writers.note(target.name, instruction, place, writers, given, held)

    def _check_mbarriers(
        self, instruction: Instruction, active: Active, where: Space, offsets: Offsets, size: int, check: str
    ) -> bool:
        """Report a plain access that touches an mbarrier; whether it does."""
        touched = where.lacks(offsets, size, MAPPED, unwanted=MBARRIER)
        if not self.has_mbarriers or not touched.any():
            return False
        error = MbarrierMisuse(
            f"{instruction.text}: {self._thread_of(active, offsets, touched)} accesses shared memory at "
            f"{self._describe(where, offsets, touched)}, where an mbarrier lies: only mbarrier instructions "
            "may, until mbarrier.inval",
            **self._where(instruction),
        )
        self.findings.report(error, check)
        return True

    def _end_mbarriers(
        self, instruction: Instruction, active: Active, where: Space, offsets: Offsets, size: int
    ) -> None:
        """The mbarriers that a plain write touches are no more: its bytes are those of any other value."""
        assert self.overwrite_mbarriers is not None
        touched = where.lacks(offsets, size, MAPPED, unwanted=MBARRIER)
        lanes = np.broadcast_to(active.lanes.reshape(-1, *(1,) * (offsets.ndim - 1)), offsets.shape)
        for lane, offset in zip(lanes[touched].tolist(), offsets[touched].tolist(), strict=True):
            self.overwrite_mbarriers(instruction, lane, offset, size)

    def _describe(self, where: Space, offsets: Offsets, bad: NDArray[np.bool_]) -> str:
        return self.describe(where, int(offsets[bad].flat[0]))

    def describe(self, where: Space, value: int) -> str:
        """A byte, for messages."""
        if isinstance(where, GlobalSpace):
            home = where.around(value)
            return f"{home.name}+{value - home.start}" if home else f"{value + GLOBAL_BASE:#x}"
        stride = self.shared_stride if where is self.shared_space else self.local_stride
        owner = f" of {self.peers.name(value // stride)}" if where is self.shared_space and self.clustered else ""
        return f"byte {value % stride}{owner}"

    def _outside(
        self,
        instruction: Instruction,
        active: Active,
        where: Space,
        offsets: Offsets,
        size: int,
        bad: NDArray[np.bool_],
    ) -> None:
        value = int(offsets[bad].flat[0])
        home = where.nearest(value) if isinstance(where, GlobalSpace) else None
        gone = where.freed_around(value) if isinstance(where, GlobalSpace) else None
        fix = ""
        if gone is not None:
            fix = "use memory before it is freed"
            place = f"{size} bytes at {gone.name}+{value - gone.start}, but {gone.name} has been freed"
        elif home is not None and value < home.start:
            place = f"{size} bytes at {home.name}-{home.start - value}, before {home.name} begins"
        elif home is not None:
            place = f"{size} bytes at {home.name}+{value - home.start}, but {home.name} has {home.size} bytes"
        else:
            place = f"{size} bytes at {value + GLOBAL_BASE:#x}, which lies in no buffer"
            if isinstance(where, GlobalSpace) and 0 <= value + GLOBAL_BASE < NEAR_NULL:
                fix = "give the kernel an array: the pointer is null"
        raise IllegalAddress(
            f"{instruction.text}: {self._thread_of(active, offsets, bad)} accesses {place}",
            fix=fix,
            **self._where(instruction),
        )


def _unmapped(where: Space, offsets: Offsets, size: int) -> NDArray[np.bool_]:
    """Which accesses fall outside every buffer, those before and behind the whole space included."""
    inside = (offsets >= 0) & (offsets + size <= len(where.shadow))
    return ~inside | where.lacks(np.where(inside, offsets, 0), size, MAPPED)
