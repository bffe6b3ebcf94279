"""Global memory that outlives launches: allocations at fixed addresses, and the variables of modules."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.memory.accesses import GLOBAL_BASE
from warptile.emulator.memory.device_heap import DeviceHeap, HeapSnapshot
from warptile.emulator.memory.spaces import (
    COPIED,
    GUARD_BYTES,
    IN_FLIGHT,
    INITIALISED,
    MAPPED,
    PARAMETERS,
    PARTLY,
    WRITTEN,
    GlobalBuffer,
    GlobalSpace,
    SpaceSnapshot,
    SpaceUndo,
    room,
)
from warptile.emulator.memory.undefined_copies import UnwrittenBytes, gaps
from warptile.emulator.program import FUNCTION_ADDRESS_BASE
from warptile.errors import EmulationError, IllegalAddress
from warptile.ptx.instruction import PtxModule, Variable

ROOM_BYTES = 1 << 26
"""Address space of which memory is used only where something is allocated. Until it is used up, no freed memory is
allocated again."""

PARAMETER_BYTES = 32_764
"""Most bytes of kernel parameters: CUDA C++ Programming Guide, "__global__ Function Parameters" (since CUDA 12.1)."""


GRID_WORKSPACE = "grid workspace"
GRID_WORKSPACE_BYTES = 8
"""Of a cooperative launch, as cooperative groups declare it (`grid_workspace`): its size, and the grid's barrier."""


@dataclass(frozen=True)
class DeviceSnapshot:
    """What `DeviceMemory.snapshot` keeps."""

    space: SpaceSnapshot | SpaceUndo
    heap: HeapSnapshot


class DeviceMemory:
    """Global memory as a host sees it: it allocates, copies and frees, and kernels run in between.

    Attributes:
        space: its bytes, as kernels access them.
        heap: what kernels allocate by `malloc`.
    """

    def __init__(self, size_bytes: int = ROOM_BYTES) -> None:
        """Room for allocations of ``size_bytes`` together with their guard bands; it grows when more are made."""
        self.space = GlobalSpace(room(PARAMETER_BYTES) + size_bytes)
        self.space.allocate(PARAMETERS, PARAMETER_BYTES)
        self.heap = DeviceHeap(self.space)
        self._modules: dict[int, tuple[PtxModule, dict[str, int]]] = {}

    def allocate(self, name: str, size: int, lead: int = 0, alignment: int = GUARD_BYTES) -> int:
        """Address of a new allocation that holds nothing, ``lead`` bytes behind a multiple of ``alignment``, which is
        256 or a multiple of it. ``name`` is what messages call it; no other allocation may have it."""
        return GLOBAL_BASE + self.space.allocate(name, size, lead, alignment).start

    def place(self, name: str, content: NDArray[Any] | bytes, *, writable: bool = True, lead: int = 0) -> int:
        """Address of a new allocation that holds ``content``; ``lead`` as of `allocate`."""
        raw = np.frombuffer(content, np.uint8)
        address = self.allocate(name, raw.size, lead)
        self.space.fill(name, raw, writable=writable)
        return address

    def free(self, address: int, *, keep_place: bool = False) -> None:
        """End the allocation that begins at an address; nothing else is allocated there if its place is kept.

        Raises:
            IllegalAddress: none begins there.
        """
        home = self.space.around(address - GLOBAL_BASE)
        if home is None or home.start != address - GLOBAL_BASE:
            gone = self.space.freed_around(address - GLOBAL_BASE)
            why = f"{gone.name} has been freed already" if gone else "no allocation begins there"
            raise IllegalAddress(f"free of {address:#x}: {why}")
        if home.start in self.heap.blocks:
            raise IllegalAddress(
                f"free of {address:#x}: {home.name} was allocated by a kernel, and a kernel has to free it"
            )
        self.space.free(home.name, keep_place=keep_place)

    def allocate_again(self, address: int) -> None:
        """Make the allocation anew whose place was kept when it was freed. It holds nothing."""
        self.space.allocate_again(address - GLOBAL_BASE)

    def home(self, address: int, size: int, doing: str) -> GlobalBuffer:
        """The allocation that holds ``size`` bytes from an address on.

        Raises:
            IllegalAddress: none does; ``doing`` says what for, such as ``"copy from the device"``.
        """
        offset = address - GLOBAL_BASE
        home = self.space.around(offset)
        if home is not None and offset + size <= home.start + home.size:
            return home
        gone = self.space.freed_around(offset)
        if gone is not None:
            why = f"{gone.name} has been freed"
        elif home is not None and offset < home.start + home.size:
            why = f"{home.name} has {home.size} bytes, and {size} bytes from byte {offset - home.start} on are wanted"
        else:
            why = "it lies in no allocation"
        raise IllegalAddress(f"{doing}, {size} bytes at {address:#x}: {why}")

    def read(self, address: int, size: int) -> bytes:
        """Bytes of one allocation. Raises as `home`."""
        if not size:
            return b""
        self.home(address, size, "copy from the device")
        offset = address - GLOBAL_BASE
        return self.space.data[offset : offset + size].tobytes()

    def unwritten(self, address: int, size: int) -> int:
        """How many of some bytes nothing has written yet."""
        offset = address - GLOBAL_BASE
        return int(np.count_nonzero(self.space.shadow[offset : offset + size] & (INITIALISED | PARTLY) == 0))

    def look_at_unwritten(self, address: int, size: int) -> UnwrittenBytes | None:
        """What the host has to know if it reads bytes of one allocation; None if all of them hold a value."""
        count = self.unwritten(address, size)
        if not count:
            return None
        home = self.home(address, size, "copy from the device")
        shadow = self.space.shadow[address - GLOBAL_BASE :][:size]
        found = gaps(shadow & (INITIALISED | PARTLY) == 0)
        values = bool((shadow & (INITIALISED | COPIED) == COPIED).any())
        copied = home.value_from if values else home.padding_from
        return UnwrittenBytes(count, copied, values and copied is not None and (copied.alone or not found), found)

    def write(self, address: int, content: NDArray[np.uint8] | bytes) -> None:
        """Change bytes of one allocation. Raises as `home`."""
        raw = np.frombuffer(content, np.uint8)
        if raw.size:
            self._set(self.home(address, raw.size, "copy to the device"), address - GLOBAL_BASE, raw)

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        """``count`` times the same bytes, in one allocation. Raises as `home`."""
        if count:
            home = self.home(address, len(pattern) * count, "memset")
            self._set(home, address - GLOBAL_BASE, np.tile(np.frombuffer(pattern, np.uint8), count))

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes; those that held nothing hold nothing afterwards. Raises as `home`."""
        if not size:
            return
        held = self.home(source, size, "copy from the device")
        home = self.home(target, size, "copy to the device")
        to, start = target - GLOBAL_BASE, source - GLOBAL_BASE
        self.space.move(slice(to, to + size), slice(start, start + size))
        home.initialised &= bool((self.space.shadow[to : to + size] & INITIALISED).all())
        home.touched = True
        if not home.initialised:
            home.padding_from = held.padding_from or home.padding_from
            home.value_from = held.value_from or home.value_from

    def _set(self, home: GlobalBuffer, offset: int, raw: NDArray[np.uint8]) -> None:
        self.space.data[offset : offset + raw.size] = raw
        self.space.shadow[offset : offset + raw.size] = MAPPED | INITIALISED
        home.initialised |= raw.size == home.size
        home.touched = True

    def start_launch(self) -> None:
        """What a kernel may ask of the bytes is whether it has written them, and whether they hold a value."""
        self.space.end_undo()
        for home in self.space.allocations:
            if not home.touched:
                continue
            home.touched = False
            shadow = self.space.shadow[home.start : home.start + home.size]
            shadow &= np.uint8(0xFF & ~(WRITTEN | IN_FLIGHT))
            home.initialised = home.initialised or bool((shadow & INITIALISED).all())

    def grid_workspace(self) -> int:
        """Address of what the driver gives a cooperative launch, as it is at its start."""
        if not self.space.has(GRID_WORKSPACE):
            self.allocate(GRID_WORKSPACE, GRID_WORKSPACE_BYTES)
        self.space.fill(GRID_WORKSPACE, GRID_WORKSPACE_BYTES.to_bytes(4, "little") + bytes(4))
        return GLOBAL_BASE + self.space.named(GRID_WORKSPACE).start

    def snapshot(self) -> DeviceSnapshot:
        """Everything, for `restore`."""
        return DeviceSnapshot(self.space.snapshot(), self.heap.snapshot())

    def remember(self) -> DeviceSnapshot:
        """The same for `restore`, in little time: what a launch writes to is kept when it does."""
        return DeviceSnapshot(self.space.remember(), self.heap.snapshot())

    def restore(self, snapshot: DeviceSnapshot) -> None:
        """Undo what has happened since."""
        self.space.restore(snapshot.space)
        self.heap.restore(snapshot.heap)

    def load(self, module: PtxModule, used: Collection[str] | None = None) -> Mapping[str, int]:
        """Addresses of the variables in global and constant memory, and of the functions, of a module. The variables
        (those ``used``, if that is given) are allocated and get their initial values when it is loaded for the first
        time."""
        if id(module) not in self._modules:
            self._modules[id(module)] = module, self._loaded(module, used)
        return self._modules[id(module)][1]

    def _loaded(self, module: PtxModule, used: Collection[str] | None) -> dict[str, int]:
        variables = [
            each
            for each in module.variables
            if each.space in ("global", "const") and (used is None or each.name in used)
        ]
        taken = {home.name for home in self.space.allocations}
        names = {
            each.name: each.name if each.name not in taken else f"{each.name} (module {len(self._modules) + 1})"
            for each in variables
        }
        symbols = {each.name: self.allocate(names[each.name], each.size_bytes) for each in variables}
        functions = [name for name, function in module.functions.items() if not function.entry]
        symbols |= {name: FUNCTION_ADDRESS_BASE + 16 * i for i, name in enumerate(functions)}
        for each in variables:
            self.space.fill(names[each.name], _initial(each, symbols), writable=each.space == "global")
        return symbols


def _initial(variable: Variable, symbols: Mapping[str, int]) -> bytes:
    content = bytearray(variable.initializer or b"")
    content += bytes(variable.size_bytes - len(content))
    for offset, symbol, addend in variable.relocations:
        if symbol not in symbols:
            raise EmulationError(f"{variable.name} is initialised with the address of {symbol}, which has none")
        content[offset : offset + 8] = (symbols[symbol] + addend).to_bytes(8, "little")
    return bytes(content)
