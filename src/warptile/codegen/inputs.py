"""The files that compilations read, identified without reading them again: digests that hold while a file's stat does.

A key of the cache contains the digest of every header that a source reaches and the version of the compiler. Reading
and hashing 1.7 MB of headers, and loading NVRTC to ask for its version, would take most of the time of a look-up. So
what was found is remembered for a file's size, times, and inode: in this process, and between processes in a note
beside the cache's entries. A note that is damaged, or that others could have written, counts for nothing.

A file that changed less than `SETTLED_NS` before it was read is not noted: its times may not tell a second change.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable

import msgspec

from warptile.codegen.cache import Cache
from warptile.decoding import decoded

SCHEMA = "warptile.inputs/1"
NOTE = "inputs"
SETTLED_NS = 2 * 10**9
"""Coarsest resolution of a file's times, on the file systems that are in use."""

Include = tuple[bool, str]
"""Whether an include is quoted, and its name."""

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.MULTILINE)
_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(\w+)[^\n]*", re.MULTILINE)
_COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)


class Stamp(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What of a file's stat changes with its content."""

    size_bytes: int
    modified_ns: int
    changed_ns: int
    inode: int

    @staticmethod
    def of(path: str) -> Stamp:
        """The stamp of a file as it is now.

        Raises:
            OSError: there is none.
        """
        found = os.stat(path)
        return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)

    @property
    def settled(self) -> bool:
        """Whether a later change of the file will show."""
        return time.time_ns() - max(self.modified_ns, self.changed_ns) > SETTLED_NS


class Header(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A header: its stamp, the SHA-256 of its content, and what it includes."""

    stamp: Stamp
    sha256: str
    includes: tuple[Include, ...]


class Compiler(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An NVRTC library.

    Attributes:
        path: its file.
        stamp: of that file.
        version: such as ``"NVRTC 13.0.88"``.
        arches: real targets that it compiles for, such as ``"sm_90"``.
    """

    path: str
    stamp: Stamp
    version: str
    arches: tuple[str, ...]


class _Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    headers: dict[str, Header]
    compilers: dict[str, Compiler]


def includes_of(content: bytes) -> tuple[Include, ...]:
    """What a source includes, in its order, whatever the preprocessor's conditions."""
    return tuple((quote == b'"', name.decode()) for quote, name in _INCLUDE.findall(content))


def includes_in_any_case(content: bytes) -> tuple[Include, ...]:
    """What a source includes outside of the preprocessor's conditions, an include guard aside."""
    directives = list(_DIRECTIVE.finditer(_COMMENT.sub(b"", content)))
    guarded = len(directives) > 1 and [each[1] for each in directives[:2]] == [b"ifndef", b"define"]
    depth, found = -int(guarded), list[Include]()
    for each in directives:
        if each[1].startswith(b"if"):
            depth += 1
        elif each[1] == b"endif":
            depth -= 1
        elif each[1] == b"include" and depth <= 0:
            found += includes_of(each[0])
    return tuple(found)


class Inputs:
    """What is known of headers and compilers. Any thread may use it."""

    def __init__(self) -> None:
        self._headers: dict[str, Header] = {}
        self._compilers: dict[str, Compiler] = {}
        self._contents: dict[str, tuple[Stamp, bytes]] = {}
        self._read: set[str] = set()
        self._unsaved = False
        self._lock = threading.Lock()

    def header(self, path: str) -> Header | None:
        """The header at ``path`` as it is now; None where there is no file."""
        try:
            stamp = Stamp.of(path)
            known = self._headers.get(path)
            if known is None or known.stamp != stamp:
                content = self.content(path, stamp)
                known = Header(stamp, hashlib.sha256(content).hexdigest(), includes_of(content))
                with self._lock:
                    self._headers[path], self._unsaved = known, True
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        return known

    @staticmethod
    def are_current(headers: Iterable[tuple[str, Header]]) -> bool:
        """Whether files are what they were, at the cost of their stats."""
        for path, header in headers:
            try:
                found = os.stat(path)
            except OSError:
                return False
            stamp = header.stamp
            if (
                found.st_mtime_ns != stamp.modified_ns
                or found.st_ctime_ns != stamp.changed_ns
                or found.st_size != stamp.size_bytes
                or found.st_ino != stamp.inode
            ):
                return False
        return True

    def content(self, path: str, stamp: Stamp) -> bytes:
        """Bytes of a file, read again if they were read for another stamp.

        Raises:
            OSError: it cannot be read.
        """
        kept = self._contents.get(path)
        if kept is None or kept[0] != stamp:
            with open(path, "rb") as file:
                kept = stamp, file.read()
            self._contents[path] = kept
        return kept[1]

    def forget(self, path: str) -> None:
        """Read a header again when it is asked for next."""
        with self._lock:
            self._headers.pop(path, None)
            self._contents.pop(path, None)

    def compiler(self, path: str, ask: Callable[[], tuple[str, tuple[str, ...]]] | None = None) -> Compiler | None:
        """The compiler whose library is at ``path``.

        Args:
            path: the library.
            ask: gives version and targets of a library that is not known; without it, None is returned for such a one.
        """
        try:
            stamp = Stamp.of(path)
        except OSError:
            return None
        known = self._compilers.get(path)
        if known is not None and known.stamp == stamp:
            return known
        if ask is None:
            return None
        version, arches = ask()
        known = Compiler(path, stamp, version, arches)
        with self._lock:
            self._compilers[path], self._unsaved = known, True
        return known

    def load(self, cache: Cache) -> None:
        """Add what the note of a cache has, once for each cache."""
        folder = str(cache.folder)
        with self._lock:
            if folder in self._read:
                return
            self._read.add(folder)
        data = cache.note(NOTE)
        if data is None:
            return
        seal, _, body = data.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != seal:
            return
        try:
            note = decoded(body, _Note)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if note.schema == SCHEMA:
            with self._lock:
                self._headers = note.headers | self._headers
                self._compilers = note.compilers | self._compilers

    def save(self, cache: Cache) -> None:
        """Write the note of a cache, if something is known that was not read from it."""
        with self._lock:
            if not self._unsaved:
                return
            self._unsaved = False
            headers = {path: each for path, each in self._headers.items() if each.stamp.settled}
            compilers = {path: each for path, each in self._compilers.items() if each.stamp.settled}
        body = msgspec.json.encode(_Note(SCHEMA, headers, compilers))
        cache.keep_note(NOTE, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


INPUTS = Inputs()
"""Of this process."""
