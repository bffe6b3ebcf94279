"""Executables and libraries as files: their sections, the libraries they need, and the symbols they take from them.

Layout: System V Application Binary Interface, chapters 4 and 5; versions of symbols: Linux Standard Base, "Symbol
Versioning".
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass

from warptile.errors import ArgumentError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")
_VERSIONS_NEEDED = struct.Struct("<HHIII")
_VERSION = struct.Struct("<IHHII")

_NEEDED, _SONAME = 1, 14
_DYNAMIC_SECTION, _DYNAMIC_SYMBOLS, _VERSION_NEEDS, _VERSION_TABLE, _NO_BITS = 6, 11, 0x6FFFFFFE, 0x6FFFFFFF, 8


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int


class ElfFile:
    """A 64-bit little-endian ELF file.

    Attributes:
        needed: names of the libraries that it is linked with.
        undefined: symbols that it takes from others, each with its version (or None).
        defined: symbols that it exports, each with its address from the base at which it is loaded.
    """

    def __init__(self, content: bytes, name: str = "the file") -> None:
        """Read it.

        Raises:
            ArgumentError: it is none, or not all of one.
        """
        if content[:6] != b"\x7fELF\x02\x01" or len(content) < _HEADER.size:
            script = content[:2] == b"#!"
            raise ArgumentError(
                f"{name} is {'a script' if script else 'no 64-bit ELF file'}; give an executable that nvcc linked, "
                f"such as ./program, or the Python that a program runs in: {sys.executable}"
            )
        self._content = content
        try:
            self._read()
        except (struct.error, IndexError, ValueError) as error:
            raise ArgumentError(f"{name} is cut short ({error}); give an executable as the linker wrote it") from error

    def _read(self) -> None:
        content = self._content
        header = _HEADER.unpack_from(content)
        start, count, names = header[6], header[12], header[13]
        raw = [_SECTION.unpack_from(content, start + 64 * number) for number in range(count)]
        self._sections = []
        for each in raw:
            where = raw[names][4] + each[0]
            title = content[where : content.index(b"\0", where)].decode()
            self._sections.append(_Section(title, each[1], each[4], each[5], each[6]))
        self.needed = tuple(self._needed())
        symbols = list(self._symbols())
        self.undefined = {name: version for name, version, section, _ in symbols if not section}
        self.defined = {name: value for name, _, section, value in symbols if section}

    def section(self, name: str) -> bytes:
        """The bytes of a section; none where there is no such section."""
        return next((self._bytes(each) for each in self._sections if each.name == name), b"")

    def _bytes(self, section: _Section) -> bytes:
        return b"" if section.kind == _NO_BITS else self._content[section.offset : section.offset + section.size]

    def _of_kind(self, kind: int) -> _Section | None:
        return next((each for each in self._sections if each.kind == kind), None)

    def _text(self, table: int, offset: int) -> str:
        content = self._bytes(self._sections[table])
        return content[offset : content.index(b"\0", offset)].decode()

    def _needed(self) -> list[str]:
        section = self._of_kind(_DYNAMIC_SECTION)
        if section is None:
            return []
        return [
            self._text(section.link, value)
            for tag, value in _DYNAMIC.iter_unpack(self._bytes(section))
            if tag == _NEEDED
        ]

    def _symbols(self) -> list[tuple[str, str | None, int, int]]:
        """Name, version, section (0 of undefined ones) and value of each dynamic symbol."""
        section = self._of_kind(_DYNAMIC_SYMBOLS)
        if section is None:
            return []
        table = self._of_kind(_VERSION_TABLE)
        versions = self._versions()
        numbers = memoryview(self._bytes(table)).cast("H") if table is not None else None
        return [
            (self._text(section.link, name), versions.get(numbers[index] & 0x7FFF) if numbers else None, where, value)
            for index, (name, _, _, where, value, _) in enumerate(_SYMBOL.iter_unpack(self._bytes(section)))
            if name
        ]

    def _versions(self) -> dict[int, str]:
        """The version of each number in the table of versions."""
        section = self._of_kind(_VERSION_NEEDS)
        found: dict[int, str] = {}
        if section is None:
            return found
        content, place = self._bytes(section), 0
        while True:
            _, count, _, first, further = _VERSIONS_NEEDED.unpack_from(content, place)
            inner = place + first
            for _ in range(count):
                _, _, number, name, step = _VERSION.unpack_from(content, inner)
                found[number] = self._text(section.link, name)
                inner += step
            if not further:
                return found
            place += further
