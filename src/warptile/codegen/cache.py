"""Compiled kernels on disk: a key names an entry, an entry is JSON metadata beside raw bytes.

One entry is one folder, named by its key, that holds ``entry.json`` and a file for each blob (``kernel.cubin``,
``kernel.ptx``: bytes that any disassembler reads). An entry is written under a temporary name and renamed, so other
processes see all of it or nothing, whenever the writer is killed. Digests of everything are checked at each read:
a truncated, altered or misplaced entry is a miss, and the next `Cache.put` replaces it. Digests prove an entry whole,
not genuine: whoever can write to it can compute them anew. So folders and files are opened without following symbolic
links, and what is opened must belong to this user or to root, and be writable by nobody else; else it is a miss too.

Beside the entries, a note is a small file that is replaced as a whole; the same is demanded of who may write to it.

There is no ``__contains__``: between the question and the read another process may clear the cache. Call `Cache.get`.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import secrets
import shutil
import stat
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec

from warptile.decoding import decoded
from warptile.errors import UnsupportedError
from warptile.folders import user_folder

SCHEMA = 1
"""Version of the entry format and of what compiled artefacts hold; it is part of every key."""

_KEY = re.compile(r"[0-9a-f]{64}")
_BLOB = re.compile(r"[a-z][a-z0-9_]{0,15}")
_STEM = "kernel."
_MANIFEST = "entry.json"
_TEMPORARY = ".new-"
_DISCARDED = ".old-"
_NOTE = ".note"
_LEFTOVER_S = 3600.0
_MOST_BYTES = 256 * 2**20
_log = logging.getLogger("warptile.codegen.cache")


class Blob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size and digest of one file of an entry."""

    size_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``entry.json``: what an entry holds, and the digests that prove it whole.

    Attributes:
        schema: `SCHEMA` of the writer.
        key: the entry's key, which is also its folder's name.
        created: when it was written, ISO 8601, UTC.
        metadata: plain JSON values; their meaning is the caller's.
        blobs: name to size and digest.
        seal: digest of this manifest with an empty seal.
    """

    schema: int
    key: str
    created: str
    metadata: dict[str, Any]
    blobs: dict[str, Blob]
    seal: str = ""


@dataclass(frozen=True)
class CacheEntry:
    """A whole, verified entry."""

    key: str
    created: str
    metadata: Mapping[str, Any]
    blobs: Mapping[str, bytes]

    @property
    def size_bytes(self) -> int:
        """Bytes of all blobs."""
        return sum(map(len, self.blobs.values()))


def key_of(parts: Mapping[str, object]) -> str:
    """The key of an artefact made from ``parts`` (strings, bytes, integers, tuples and mappings of them).

    Every part and its name go in with their lengths, so no two different mappings give the same bytes to hash.
    """
    digest = hashlib.sha256()

    def feed(value: object) -> None:
        if isinstance(value, bytes):
            digest.update(b"b%d:" % len(value) + value)
        elif isinstance(value, str):
            encoded = value.encode()
            digest.update(b"s%d:" % len(encoded) + encoded)
        elif isinstance(value, int):
            digest.update(b"i%d:" % value)
        elif isinstance(value, Mapping):
            digest.update(b"m%d:" % len(value))
            for name in sorted(value):
                feed(name)
                feed(value[name])
        elif isinstance(value, (tuple, list)):
            digest.update(b"t%d:" % len(value))
            for item in value:
                feed(item)
        else:
            raise TypeError(f"key_of: {type(value).__name__} has no stable bytes; give it as str, bytes or int")

    feed({"schema": SCHEMA, **parts})
    return digest.hexdigest()


def default_folder() -> Path:
    """Where the cache lives: ``WARPTILE_CACHE_DIR``, read at each call, else the platform's cache folder."""
    return user_folder("cache")


def _sealed(manifest: Manifest) -> Manifest:
    body = msgspec.json.encode(msgspec.structs.replace(manifest, seal=""), order="deterministic")
    return msgspec.structs.replace(manifest, seal=hashlib.sha256(body).hexdigest())


def _pack(key: str, created: str, metadata: Mapping[str, Any], blobs: Mapping[str, bytes]) -> bytes:
    """The bytes of ``entry.json``."""
    described = {name: Blob(len(data), hashlib.sha256(data).hexdigest()) for name, data in blobs.items()}
    manifest = _sealed(Manifest(SCHEMA, key, created, dict(metadata), described))
    return msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"))


def _verify(key: str, manifest_bytes: bytes, blob_of: Callable[[str, int], bytes]) -> CacheEntry:
    """The entry whose manifest is ``manifest_bytes``; ``blob_of`` gives the bytes of a blob, at most so many of them.

    Raises:
        ValueError: something is missing, altered, or of another schema; the message says what.
        OSError: a file cannot be read.
    """
    try:
        manifest = decoded(manifest_bytes, Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{_MANIFEST} is damaged ({error})") from None
    if manifest.schema != SCHEMA:
        raise ValueError(f"schema is {manifest.schema}, this version reads {SCHEMA}")
    if manifest.key != key:
        raise ValueError(f"{_MANIFEST} belongs to another key, {manifest.key[:16]}...")
    if _sealed(manifest).seal != manifest.seal:
        raise ValueError(f"{_MANIFEST} has been altered: its digest does not match")
    contents = {}
    for name, blob in manifest.blobs.items():
        if not _BLOB.fullmatch(name):
            raise ValueError(f"blob name {name!r} is not a plain word")
        data = blob_of(name, blob.size_bytes + 1)
        if len(data) != blob.size_bytes or hashlib.sha256(data).hexdigest() != blob.sha256:
            raise ValueError(f"{_STEM}{name} is truncated or altered: its size or digest does not match")
        contents[name] = data
    return CacheEntry(key, manifest.created, manifest.metadata, contents)


class _Untrusted(ValueError):
    """Someone else could have written this; the message names it and the fix."""


def _distrust(path: Path, found: os.stat_result, fix: str) -> str | None:
    """Why ``path`` must not be trusted, with the fix (``fix`` where it is another user's), or None."""
    if found.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to user {found.st_uid}, not to you ({os.geteuid()}); {fix}"
    if found.st_mode & 0o022:
        return f"others may write to {path}; run: chmod go-w '{path}'"
    return None


@contextmanager
def _opened(path: Path, flags: int, folder: int | None = None) -> Iterator[int]:
    """A descriptor of ``path``, relative to the descriptor ``folder`` if there is one, never through a symbolic link.

    Raises:
        _Untrusted: it belongs to someone else than this user or root, or others may write to it.
        OSError: it cannot be opened.
    """
    name = path if folder is None else path.name
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | flags, dir_fd=folder)
    try:
        reason = _distrust(path, os.fstat(descriptor), f"run: rm -r '{path}'")
        if reason is not None:
            raise _Untrusted(reason)
        yield descriptor
    finally:
        os.close(descriptor)


def _read(path: Path, folder: int, most_bytes: int) -> bytes:
    """Content of the regular file ``path``, whose folder has the descriptor ``folder``: at most ``most_bytes``.

    Raises:
        _Untrusted: as `_opened`.
        OSError: it cannot be read, or is no regular file.
    """
    with _opened(path, 0, folder) as descriptor:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is not a regular file")
        # A file object would cost more than the read of a small file.
        whole = os.read(descriptor, min(found.st_size + 1, most_bytes))
        if len(whole) in (found.st_size, most_bytes):
            return whole
        with open(descriptor, "rb", closefd=False) as file:
            return whole + file.read(most_bytes - len(whole))


def _write(path: Path, data: bytes) -> None:
    """A new file that only its owner may read and write, whatever the umask."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(data)


def _problem_with(folder: Path) -> str | None:
    """Why an existing ``folder`` must not be trusted, with the fix, or None."""
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        return f"{folder} is a symbolic link; set WARPTILE_CACHE_DIR to the folder itself"
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is not a folder; remove it or set WARPTILE_CACHE_DIR to another path"
    return _distrust(folder, found, "set WARPTILE_CACHE_DIR to a folder of your own")


@lru_cache(maxsize=256)
def _warn_once(message: str) -> None:
    """Say ``message`` on the log, once a process: a folder that keeps nothing does so for every kernel."""
    _log.warning(message)


class Cache:
    """Entries in one folder. Reading and writing never raise for the state of the disk: they miss, or keep nothing.

    All entries are in ``folder/kernels``, created at the first write with mode 0700.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        """A cache in ``folder``, or in `default_folder`, looked up again at each use."""
        self._folder = None if folder is None else Path(folder)

    @property
    def folder(self) -> Path:
        """The cache's folder, whether or not it exists."""
        return self._folder if self._folder is not None else default_folder()

    @property
    def entries(self) -> Path:
        """The folder of the entries."""
        return self.folder / "kernels"

    def problem(self) -> str | None:
        """Why this cache keeps nothing, with the fix, or None where it works (or can be made). Changes nothing."""
        try:
            for folder in (self.folder, self.entries):
                if os.path.lexists(folder) and (reason := _problem_with(folder)):
                    return reason
            existing = self.entries
            while not existing.exists():
                if existing.parent == existing:
                    break
                existing = existing.parent
            if not existing.is_dir():
                return f"{existing} is not a folder; set WARPTILE_CACHE_DIR to another path"
            if not os.access(existing, os.W_OK | os.X_OK):
                return f"{existing} cannot be written to; set WARPTILE_CACHE_DIR to a folder that can"
        except OSError as error:
            return f"{self.folder}: {error.strerror or error}; set WARPTILE_CACHE_DIR to another path"
        return None

    def _refusal(self) -> str | None:
        """Why the folders that exist must not be used at all (not even read), or None."""
        try:
            for folder in (self.folder, self.entries):
                if os.path.lexists(folder) and (reason := _problem_with(folder)):
                    return reason
        except OSError as error:
            return f"{self.folder}: {error.strerror or error}"
        return None

    def get(self, key: str) -> CacheEntry | None:
        """The entry of ``key``, every digest checked, or None."""
        assert _KEY.fullmatch(key), key
        if reason := self._refusal():
            _warn_once(f"cache not used: {reason}")
            return None
        try:
            return self._load(key)
        except FileNotFoundError:
            return None
        except _Untrusted as error:
            _warn_once(f"cache entry {key[:16]}... is not used: {error}")
            return None
        except (OSError, ValueError) as error:
            _log.info("cache entry %s... is not used: %s", key[:16], error)
            return None

    def _load(self, key: str) -> CacheEntry:
        """The entry of ``key``.

        Raises:
            ValueError: it is damaged, or (`_Untrusted`) someone else could have written it.
            OSError: it is not there, or cannot be read.
        """
        path = self.entries / key
        with _opened(self.entries, os.O_DIRECTORY) as entries, _opened(path, os.O_DIRECTORY, entries) as folder:
            manifest = _read(path / _MANIFEST, folder, _MOST_BYTES)
            return _verify(key, manifest, lambda name, most_bytes: _read(path / f"{_STEM}{name}", folder, most_bytes))

    def put(self, key: str, metadata: Mapping[str, Any], blobs: Mapping[str, bytes]) -> bool:
        """Keep an entry; whether it was kept. A whole entry of the same key that is already there stays."""
        return self._put(key, datetime.now(UTC).isoformat(timespec="seconds"), metadata, blobs)

    def _put(self, key: str, created: str, metadata: Mapping[str, Any], blobs: Mapping[str, bytes]) -> bool:
        assert _KEY.fullmatch(key), key
        assert all(_BLOB.fullmatch(name) for name in blobs), tuple(blobs)
        manifest = _pack(key, created, metadata, blobs)
        if reason := self._refusal():
            _warn_once(f"cache not used: {reason}")
            return False
        temporary = self.entries / f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        try:
            self._make_folders(temporary)
            # No fsync: a file that a power cut left short fails its digest, and that is a miss.
            for name, data in blobs.items():
                _write(temporary / f"{_STEM}{name}", data)
            _write(temporary / _MANIFEST, manifest)
            self._install(temporary, key)
            self._sweep()
        except OSError as error:
            why = error.strerror or error
            _warn_once(
                f"compiled kernels are not kept in {self.entries} ({why}): every process compiles them again; make "
                "room there or set WARPTILE_CACHE_DIR to a folder that can be written to"
            )
            return False
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return True

    def _install(self, temporary: Path, key: str) -> None:
        """Rename a finished entry into place; an entry already there gives way only if it is not whole."""
        final = self.entries / key
        for _ in range(8):
            try:
                # Renaming onto a folder that is not empty fails, so of many writers exactly one succeeds.
                os.rename(temporary, final)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
            try:
                self._load(key)
                return
            except FileNotFoundError:
                if not os.path.lexists(final):
                    continue
            except (OSError, ValueError):
                pass
            self._discard(final)
        raise OSError(f"{final} keeps being replaced by something that is no entry")

    def _discard(self, path: Path) -> None:
        """Take ``path`` out of the way in one step, then remove it."""
        aside = self.entries / f"{_DISCARDED}{os.getpid()}-{secrets.token_hex(8)}"
        try:
            os.rename(path, aside)
        except FileNotFoundError:
            return
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)

    def _sweep(self, older_than_s: float = _LEFTOVER_S) -> None:
        """Remove what killed writers left behind, once it is too old to be in use."""
        now = time.time()
        with os.scandir(self.entries) as found:
            for item in found:
                if not item.name.startswith((_TEMPORARY, _DISCARDED)):
                    continue
                try:
                    if now - item.stat(follow_symlinks=False).st_mtime >= older_than_s:
                        shutil.rmtree(item.path, ignore_errors=True)
                except FileNotFoundError:
                    continue

    def note(self, name: str) -> bytes | None:
        """The note called ``name``, or None where there is none that can be trusted."""
        if self._refusal():
            return None
        try:
            with _opened(self.folder, os.O_DIRECTORY) as folder:
                return _read(self.folder / f"{name}{_NOTE}", folder, _MOST_BYTES)
        except (OSError, _Untrusted):
            return None

    def keep_note(self, name: str, data: bytes) -> bool:
        """Write the note called ``name`` in place of the one that is there; whether it was kept."""
        if self._refusal():
            return False
        temporary = self.entries / f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        try:
            self._make_folders(temporary)
            _write(temporary / name, data)
            os.replace(temporary / name, self.folder / f"{name}{_NOTE}")
        except OSError:
            return False
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return True

    def _make_folders(self, temporary: Path) -> None:
        """The cache's folders, and one for what is being written."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.entries.mkdir(mode=0o700, exist_ok=True)
        temporary.mkdir(mode=0o700)

    def _keys(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.entries) if _KEY.fullmatch(name))
        except FileNotFoundError:
            return []

    def list(self) -> Iterator[CacheEntry]:
        """Every whole entry, by key.

        Raises:
            UnsupportedError: the folder is a symbolic link, another user's, or open to others, or cannot be read.
        """
        self._demand()
        try:
            keys = self._keys()
        except OSError as error:
            raise UnsupportedError(
                f"cache: {self.entries} cannot be read ({error.strerror or error}); set WARPTILE_CACHE_DIR to another "
                "path"
            ) from error
        for key in keys:
            entry = self.get(key)
            if entry is not None:
                yield entry

    def _demand(self) -> None:
        if reason := self._refusal():
            raise UnsupportedError(f"cache: {reason}")

    def clear(self) -> int:
        """Remove every entry, whole or not, the notes, and what killed writers left; the number of entries removed.

        Raises:
            UnsupportedError: the folder is a symbolic link, another user's, or open to others, or cannot be changed.
        """
        self._demand()
        try:
            keys = self._keys()
            for key in keys:
                self._discard(self.entries / key)
            if self.entries.is_dir():
                self._sweep(older_than_s=0.0)
            for note in self.folder.glob(f"*{_NOTE}"):
                note.unlink(missing_ok=True)
        except OSError as error:
            raise UnsupportedError(
                f"cache: {self.entries} cannot be cleared ({error.strerror or error}); remove it as its owner"
            ) from error
        return len(keys)

    def export_to(self, file: str | os.PathLike[str]) -> int:
        """Write every whole entry to ``file``, one zip archive; the number of entries.

        The archive appears under its name only when it is complete.
        """
        target = Path(file)
        partial = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}")
        count = 0
        try:
            with zipfile.ZipFile(partial, "x", zipfile.ZIP_DEFLATED) as archive:
                for entry in self.list():
                    manifest = _pack(entry.key, entry.created, entry.metadata, entry.blobs)
                    archive.writestr(f"{entry.key}/{_MANIFEST}", manifest)
                    for name, data in entry.blobs.items():
                        archive.writestr(f"{entry.key}/{_STEM}{name}", data)
                    count += 1
            os.replace(partial, target)
        except OSError as error:
            raise UnsupportedError(f"cache export: {target} cannot be written ({error.strerror or error})") from error
        finally:
            partial.unlink(missing_ok=True)
        return count

    def import_from(self, file: str | os.PathLike[str]) -> int:
        """Add the entries of an archive that `export_to` wrote; the number of entries in it.

        Every name, size and digest of the whole archive is checked before anything is kept. Kernels from an archive
        run on the GPU: import only what you would also install.

        Raises:
            UnsupportedError: the file is no such archive, something in it is damaged, or the folder cannot be used.
        """
        self._demand()
        try:
            entries = _read_archive(Path(file))
        except (OSError, ValueError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
            raise UnsupportedError(
                f"cache import: {file} is not a whole archive of `warptile cache export` ({error})"
            ) from error
        for entry in entries:
            if not self._put(entry.key, entry.created, entry.metadata, entry.blobs):
                raise UnsupportedError(f"cache import: {self.problem() or f'{self.entries} cannot be written to'}")
        return len(entries)


def _kept(blobs: Mapping[str, bytes], name: str, most_bytes: int) -> bytes:
    """A blob that has been read already."""
    return blobs.get(name, b"")


def _read_archive(file: Path) -> list[CacheEntry]:
    """All entries of an exported archive, verified.

    Raises:
        ValueError: a member that no export writes, too large, missing or altered.
    """
    members: dict[str, dict[str, bytes]] = {}
    left_bytes = _MOST_BYTES * 4
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            key, _, name = member.filename.partition("/")
            blob = name.removeprefix(_STEM) if name.startswith(_STEM) else None
            if not _KEY.fullmatch(key) or not (name == _MANIFEST or (blob and _BLOB.fullmatch(blob))):
                raise ValueError(f"unexpected member {member.filename!r}")
            if name in members.setdefault(key, {}):
                raise ValueError(f"member {member.filename!r} is there twice")
            if member.file_size > left_bytes:
                raise ValueError(f"member {member.filename!r} is too large")
            with archive.open(member) as opened:
                data = opened.read(member.file_size + 1)
            left_bytes -= len(data)
            members[key][name] = data
    entries = []
    for key, files in sorted(members.items()):
        manifest = files.pop(_MANIFEST, None)
        if manifest is None:
            raise ValueError(f"{key[:16]}... has no {_MANIFEST}")
        blobs = {name.removeprefix(_STEM): data for name, data in files.items()}
        entries.append(_verify(key, manifest, partial(_kept, blobs)))
    return entries
