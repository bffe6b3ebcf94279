"""Short names for the files that a compiler's line information names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

_FILE = re.compile(rb'^(?P<head>\s*\.file\s+\d+\s+")(?P<name>(?:[^"\\\n]|\\.)+)(?=")', re.M)

_ESCAPED = re.compile(rb"\\([0-7]{3}|.)")
_SPECIAL = re.compile(r'["\\]')


def short_names(files: Iterable[str]) -> dict[str, str]:
    """Each file by the fewest last parts of its path that no other file has: ``a/tile.h`` and ``b/tile.h``.

    Two spellings of one path (``x/../y.h`` and ``y.h``) have one name.
    """
    plain = {file: PurePosixPath(os.path.normpath(file)) for file in files}
    paths = sorted(set(plain.values()))
    named = {path: _shortest(path, [other for other in paths if other != path]) for path in paths}
    return {file: named[path] for file, path in plain.items()}


def _shortest(path: PurePosixPath, others: list[PurePosixPath]) -> str:
    for length in range(1, len(path.parts)):
        last = path.parts[-length:]
        if all(other.parts[-length:] != last for other in others):
            return "/".join(last)
    return str(path)


def files_of(ptx: bytes) -> list[str]:
    """The files that PTX names, in order."""
    return list(dict.fromkeys(_unescaped(found["name"]) for found in _FILE.finditer(ptx)))


def renamed(ptx: bytes, names: Mapping[str, str]) -> bytes:
    """PTX whose line information has other names for files."""

    def other(found: re.Match[bytes]) -> bytes:
        name = _unescaped(found["name"])
        return found["head"] + _SPECIAL.sub(r"\\\g<0>", names.get(name, name)).encode()

    return _FILE.sub(other, ptx)


def _unescaped(name: bytes) -> str:
    """A name in quotes as it is: compilers write bytes that are no ASCII as ``\\303``."""

    def plain(found: re.Match[bytes]) -> bytes:
        return bytes([int(found[1], 8) & 0xFF]) if len(found[1]) == 3 else found[1]

    return _ESCAPED.sub(plain, name).decode(errors="replace")
