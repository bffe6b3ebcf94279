"""PTX in fat binaries, which nvcc puts into executables: for each architecture, machine code, PTX, or both."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from warptile.errors import UnsupportedError
from warptile.programs.compression import lz4_block, zstandard_frame

MAGIC = 0xBA55ED50
HEADER = struct.Struct("<IHHQ")
"""Magic number, version, bytes of the header, bytes of what follows."""

WRAPPER = struct.Struct("<IIQQ")
"""What ``__cudaRegisterFatBinary`` is given: magic number, version, address of the fat binary, and of a file name."""

_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_PTX = 1
_LZ4, _ZSTANDARD = 0x2000, 0x8000

_TARGET = re.compile(rb"^\s*\.target\s+(sm_\d+[af]?)", re.M)


@dataclass(frozen=True)
class FatPtx:
    """PTX of one file for one architecture.

    Attributes:
        target: such as ``"sm_90a"``.
        text: PTX.
    """

    target: str
    text: bytes

    @property
    def capability(self) -> int:
        """Compute capability that it is for, such as 90."""
        return int(re.sub(r"\D", "", self.target))

    @property
    def for_one_architecture(self) -> bool:
        """It runs on its own architecture alone, not on later ones."""
        return self.target.endswith("a")


def size_of(header: bytes) -> int:
    """Bytes of a fat binary with its header."""
    _, _, first, rest = HEADER.unpack_from(header)
    return int(first + rest)


def ptx_of(content: bytes) -> list[FatPtx]:
    """The PTX in one or several fat binaries behind each other.

    Raises:
        UnsupportedError: it is compressed in a way that nothing here reads.
    """
    found = []
    for kind, flags, size, packed in _entries(content):
        if kind != _PTX:
            continue
        text = _text(packed, flags, size).rstrip(b"\0")
        target = target_of(text)
        if target is not None:
            found.append(FatPtx(target, text))
    return found


def target_of(text: bytes) -> str | None:
    """The architecture that PTX is for; None of anything else."""
    found = _TARGET.search(text)
    return None if found is None else found[1].decode()


def _entries(content: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, flags, size when decompressed (0 if it is not compressed) and bytes of each entry."""
    place = 0
    while place + HEADER.size <= len(content):
        magic, _, header, rest = HEADER.unpack_from(content, place)
        if magic != MAGIC:
            return
        inner, end = place + header, place + header + rest
        while inner + _ENTRY.size <= end:
            fields = _ENTRY.unpack_from(content, inner)
            kind, _, start, stored, packed_size, *_, flags, _, size = fields
            packed = content[inner + start : inner + start + (packed_size or stored)]
            yield kind, flags, size, packed
            inner += start + stored
        place = -(-end // 8) * 8


def _text(packed: bytes, flags: int, size: int) -> bytes:
    if not size:
        return packed
    if flags & _ZSTANDARD:
        return zstandard_frame(packed, size)
    if flags & _LZ4:
        return lz4_block(packed, size)
    raise UnsupportedError(
        f"the executable's PTX is compressed in an unknown way (flags {flags:#x}); compile it with nvcc -no-compress"
    )


def chosen(candidates: list[FatPtx], capability: int) -> FatPtx | None:
    """Of one file's PTX what the driver would compile for a GPU: the newest that the GPU runs."""
    running = [
        each
        for each in candidates
        if each.capability == capability or (each.capability < capability and not each.for_one_architecture)
    ]
    return max(running, key=lambda each: (each.capability, each.for_one_architecture), default=None)
