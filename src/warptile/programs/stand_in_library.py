"""The stand-in for a CUDA library as a shared object, written without a linker.

It has the functions of `trampolines`, each exported by its name and version, and room for what pointers
that calls return point to.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from warptile.programs.trampolines import SLOT_BYTES

ROOM_BYTES = 1 << 16
"""Writable bytes of the library, from `ROOM_OFFSET` on from its base."""

_PAGE = 4096
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_READ, _WRITE, _EXECUTE = 4, 2, 1
_LOAD, _DYNAMIC_SEGMENT, _STACK = 1, 2, 0x6474E551
_SHARED_OBJECT, _X86_64 = 3, 62
_GLOBAL_FUNCTION = 0x12
_HASH, _STRINGS, _SYMBOLS, _STRING_BYTES, _SYMBOL_BYTES, _SONAME = 4, 5, 6, 10, 11, 14
_VERSION_TABLE, _VERSIONS, _VERSION_COUNT = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD


class StandInLibrary:
    """A shared object.

    Attributes:
        content: the file.
        room_offset: where its writable room is, from the base at which it is loaded.
        offsets: where each function is, likewise.
    """

    def __init__(self, soname: str, functions: Sequence[str], code: bytes, version: str | None) -> None:
        """Lay it out.

        Args:
            soname: that programs know it by, such as ``"libcudart.so.13"``.
            functions: names, in the order of ``code``.
            code: of `warptile.programs.trampolines.machine_code`.
            version: of all symbols, or None.
        """
        strings = _Strings()
        names = [strings.place(name) for name in functions]
        title, version_name = strings.place(soname), strings.place(version or soname)
        symbols_at = _aligned(_HEADER.size + 4 * _SEGMENT.size)
        hash_at = symbols_at + _SYMBOL.size * (len(functions) + 1)
        hashes = _hash_table(functions)
        versions_at = _aligned(hash_at + len(hashes))
        table = struct.pack(f"<{len(functions) + 1}H", 0, *[2 if version else 1] * len(functions))
        needs_at = _aligned(versions_at + len(table))
        definitions = _definitions(soname, title, version, version_name)
        strings_at = needs_at + len(definitions)
        code_at = _aligned(strings_at + len(strings.content), 64)
        dynamic_at = _aligned(code_at + len(code), _PAGE)
        self.offsets = {name: code_at + SLOT_BYTES * number for number, name in enumerate(functions)}
        symbols = _SYMBOL.pack(0, 0, 0, 0, 0, 0) + b"".join(
            _SYMBOL.pack(name, _GLOBAL_FUNCTION, 0, 1, code_at + SLOT_BYTES * number, SLOT_BYTES)
            for number, name in enumerate(names)
        )
        entries = [
            (_SONAME, title), (_HASH, hash_at), (_STRINGS, strings_at), (_SYMBOLS, symbols_at),
            (_STRING_BYTES, len(strings.content)), (_SYMBOL_BYTES, _SYMBOL.size),
        ]  # fmt: skip
        if version:
            entries += [(_VERSION_TABLE, versions_at), (_VERSIONS, needs_at), (_VERSION_COUNT, 2)]
        dynamic = b"".join(struct.pack("<QQ", *entry) for entry in [*entries, (0, 0)])
        self.room_offset = _aligned(dynamic_at + len(dynamic), 64)
        end = self.room_offset + ROOM_BYTES
        segments = [
            (_LOAD, _READ | _EXECUTE, 0, 0, 0, code_at + len(code), code_at + len(code), _PAGE),
            (_LOAD, _READ | _WRITE, dynamic_at, dynamic_at, dynamic_at, len(dynamic), end - dynamic_at, _PAGE),
            (_DYNAMIC_SEGMENT, _READ | _WRITE, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8),
            (_STACK, _READ | _WRITE, 0, 0, 0, 0, 0, 16),
        ]
        header = _HEADER.pack(
            b"\x7fELF\x02\x01\x01", _SHARED_OBJECT, _X86_64, 1, 0, _HEADER.size, 0, 0, _HEADER.size, _SEGMENT.size,
            len(segments), 0, 0, 0,
        )  # fmt: skip
        content = bytearray(dynamic_at + len(dynamic))
        for place, part in (
            (0, header + b"".join(_SEGMENT.pack(*each) for each in segments)), (symbols_at, symbols),
            (hash_at, hashes), (versions_at, table), (needs_at, definitions), (strings_at, strings.content),
            (code_at, code), (dynamic_at, dynamic),
        ):  # fmt: skip
            content[place : place + len(part)] = part
        self.content = bytes(content)


class _Strings:
    """A string table."""

    def __init__(self) -> None:
        self.content = b"\0"

    def place(self, text: str) -> int:
        """Where a text is from now on."""
        at = len(self.content)
        self.content += text.encode() + b"\0"
        return at


def _aligned(offset: int, unit: int = 8) -> int:
    return -(-offset // unit) * unit


def _hash(name: str) -> int:
    """The hash function of System V's symbol tables."""
    found = 0
    for byte in name.encode():
        found = (found << 4) + byte
        high = found & 0xF0000000
        found = (found ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return found


def _hash_table(functions: Sequence[str]) -> bytes:
    """Symbols by their hash: a chain of symbol numbers for each bucket."""
    size = max(1, len(functions))
    buckets, chains = [0] * size, [0] * (len(functions) + 1)
    for number, name in enumerate(functions, 1):
        place = _hash(name) % size
        chains[number], buckets[place] = buckets[place], number
    return struct.pack(f"<{2 + size + len(chains)}I", size, len(chains), *buckets, *chains)


def _definitions(soname: str, title: int, version: str | None, version_name: int) -> bytes:
    """The versions that the library defines: the first is that of the library itself."""
    if version is None:
        return b""
    base = struct.pack("<HHHHIII", 1, 1, 1, 1, _hash(soname), 20, 28) + struct.pack("<II", title, 0)
    return base + struct.pack("<HHHHIII", 1, 0, 2, 1, _hash(version), 20, 0) + struct.pack("<II", version_name, 0)
