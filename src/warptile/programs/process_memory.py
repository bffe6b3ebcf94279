"""Memory of another process, which is a child of this one: by its file in /proc."""

from __future__ import annotations

import os
import struct
from pathlib import Path

_STRING_STEP = 64


class ProcessMemory:
    """Memory of the process ``pid``.

    Raises:
        OSError: reads and writes, at addresses that are not mapped.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._file = os.open(f"/proc/{pid}/mem", os.O_RDWR)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def read(self, address: int, size: int) -> bytes:
        """Bytes from an address on."""
        found = os.pread(self._file, size, address) if size else b""
        while len(found) < size:
            more = os.pread(self._file, size - len(found), address + len(found))
            if not more:
                raise OSError(f"process {self.pid} has no memory at {address + len(found):#x}")
            found += more
        return found

    def write(self, address: int, content: bytes) -> None:
        """Change bytes from an address on."""
        view = memoryview(content)
        while view:
            done = os.pwrite(self._file, view, address)
            view, address = view[done:], address + done

    def string(self, address: int) -> str:
        """Text up to a zero byte."""
        found = b""
        while b"\0" not in found:
            room = _STRING_STEP - (address + len(found)) % _STRING_STEP
            found += self.read(address + len(found), room)
        return found[: found.index(b"\0")].decode(errors="replace")

    def unpack(self, layout: str, address: int) -> tuple[int, ...]:
        """Values of a `struct` layout."""
        return struct.unpack(layout, self.read(address, struct.calcsize(layout)))

    def pack(self, layout: str, address: int, *values: float) -> None:
        """Write values in a `struct` layout."""
        self.write(address, struct.pack(layout, *values))

    def libraries(self) -> dict[Path, int]:
        """The files that are mapped, each with the lowest address."""
        found: dict[Path, int] = {}
        for line in Path(f"/proc/{self.pid}/maps").read_text("utf-8").splitlines():
            span, *_, path = line.split(maxsplit=5)
            if path.startswith("/"):
                found.setdefault(Path(path), int(span.partition("-")[0], 16))
        return found

    def base_of(self, library: Path) -> int:
        """Where a library is loaded."""
        try:
            return self.libraries()[library]
        except KeyError:
            raise OSError(f"process {self.pid} has not loaded {library}") from None
