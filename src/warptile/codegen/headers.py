"""Which headers a kernel source reaches, and where CUDA's own headers and programs are.

warptile's kernel headers travel to the compiler in memory, so a machine's folders never show in its output;
CUDA's headers come from the wheels' include folder, or from a toolkit where the wheels lack some.

Within a process, an edit of one of warptile's headers counts from the next look-up or compilation on; what changes
among CUDA's headers, which only an installation does, counts in the next process.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from warptile.codegen.inputs import INPUTS, Header, Include, includes_of
from warptile.errors import CompileError

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
"""Folder of warptile's CUDA C++; every ``#include "..."`` in it is written relative to this folder."""

NEEDED = ("cuda_fp16.h", "cuda_bf16.h", "mma.h", "crt/mma.h", "vector_types.h", "cuda.h")
"""CUDA headers that the kernels cannot do without; ``crt/mma.h`` comes in a separate wheel, ``nvidia-cuda-crt``."""

INSTALL = "python3 -m pip install 'cuda-toolkit[crt,cudart,nvrtc]>=13.0,<14'"
"""The command that installs NVRTC and all the headers that it needs."""

_CUDA_H_BYTES = 1 << 16
"""From the start of ``cuda.h``, what is read to find its release."""


@dataclass(frozen=True)
class IncludeFolder:
    """A folder of CUDA headers.

    Attributes:
        path: the folder.
        release: CUDA release that its ``cuda.h`` states, as ``(major, minor)``, or None without one.
        missing: headers of `NEEDED` that it lacks.
    """

    path: Path
    release: tuple[int, int] | None
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Headers:
    """The headers that one source reaches through its includes.

    Attributes:
        own_files: warptile's headers: include name to file and what is known of it, in the order in which they are met.
        cuda_files: CUDA's headers: name relative to their folder to the same.
    """

    own_files: Mapping[str, tuple[str, Header]]
    cuda_files: Mapping[str, tuple[str, Header]]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all names and contents."""
        digest = hashlib.sha256()
        for folder, files in (("own", self.own_files), ("cuda", self.cuda_files)):
            for name in sorted(files):
                digest.update(f"{folder}\0{name}\0{files[name][1].sha256}\0".encode())
        return digest.hexdigest()

    @cached_property
    def own(self) -> Mapping[str, bytes]:
        """Content of each of warptile's headers.

        Raises:
            HeaderChanged: a file is not any more what it was.
        """
        return {name: _content(path, header) for name, (path, header) in self.own_files.items()}

    @property
    def is_current(self) -> bool:
        """Whether warptile's headers are what they were."""
        return INPUTS.are_current(self.own_files.values())


class HeaderChanged(Exception):
    """A header is not any more what it was when the sources that reach it were worked out: work them out again."""


def _content(path: str, header: Header) -> bytes:
    content = INPUTS.content(path, header.stamp)
    if hashlib.sha256(content).hexdigest() != header.sha256:
        INPUTS.forget(path)
        _reached.clear()
        raise HeaderChanged(path)
    return content


def wheel_folders() -> Iterator[Path]:
    """Folders of CUDA's wheels (with ``include``, ``lib``, ``bin`` in them), newest release first."""
    yield from _installed_wheels()


@lru_cache(maxsize=1)
def _installed_wheels() -> tuple[Path, ...]:
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        spec = None
    parents = (spec.submodule_search_locations or ()) if spec else ()
    return tuple(folder for parent in parents for folder in sorted(Path(parent).glob("cu1[3-9]"), reverse=True))


def program(name: str) -> Path | None:
    """A program of CUDA's, such as ``"nvdisasm"`` or ``"cuobjdump"``: a wheel's, else the one on the PATH."""
    for folder in wheel_folders():
        if os.access(folder / "bin" / name, os.X_OK):
            return folder / "bin" / name
    found = shutil.which(name)
    return Path(found) if found else None


def _folders() -> Iterator[Path]:
    """Include folders worth a look: the wheels', then a toolkit's."""
    yield from (folder / "include" for folder in wheel_folders())
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "include"
    yield Path("/usr/local/cuda/include")


def _inspect(folder: Path) -> IncludeFolder:
    """What ``folder`` has of CUDA's headers."""
    release = None
    try:
        with open(folder / "cuda.h", "rb") as file:
            found = re.search(rb"#define[ \t]+CUDA_VERSION[ \t]+(\d+)", file.read(_CUDA_H_BYTES))
        if found:
            release = (int(found[1]) // 1000, int(found[1]) % 1000 // 10)
    except OSError:
        pass
    return IncludeFolder(folder, release, tuple(name for name in NEEDED if not (folder / name).is_file()))


def candidates() -> Iterator[IncludeFolder]:
    """Every folder with CUDA headers on this machine, in order of preference, complete or not."""
    seen: set[Path] = set()
    for folder in _folders():
        if folder not in seen and folder.is_dir():
            seen.add(folder)
            yield _inspect(folder)


def cuda_include_folder(nvrtc_major: int) -> Path:
    """The first folder that has every needed header of CUDA release ``nvrtc_major``.

    Raises:
        CompileError: there is none; the message lists what each folder lacks and the command that installs them.
    """
    looked_at = []
    for folder in candidates():
        if not folder.missing and folder.release is not None and folder.release[0] == nvrtc_major:
            return folder.path
        looked_at.append(folder)
    reasons = []
    for folder in looked_at:
        if folder.missing:
            reasons.append(f"{folder.path} lacks {', '.join(folder.missing)}")
        elif folder.release is None:
            reasons.append(f"{folder.path}/cuda.h states no CUDA_VERSION")
        else:
            reasons.append(f"{folder.path} is of CUDA {folder.release[0]}.{folder.release[1]}, NVRTC of {nvrtc_major}")
    raise CompileError(
        f"CUDA headers: no folder has all that the kernels include ({'; '.join(reasons) or 'none found'}); "
        f"install them with: {INSTALL}"
    )


def cccl_folder(nvrtc_major: int) -> Path | None:
    """The first folder with the headers of CCCL (CUB, libcu++, Thrust) of CUDA release ``nvrtc_major``: those that
    CUDA's own headers are taken from need not have them. None where there is none."""
    found = (each.path / "cccl" for each in candidates() if each.release is not None and each.release[0] == nvrtc_major)
    return next((folder for folder in found if folder.is_dir()), None)


_reached: dict[tuple[tuple[Include, ...], Path, Path], Headers] = {}
"""What includes reach, by their folders; it holds as long as `Headers.is_current`."""


def reachable(text: str, cuda_folder: Path, own_folder: Path | None = None) -> Headers:
    """All headers that ``text`` includes, directly or through others, whatever the preprocessor's conditions.

    Includes that neither folder has are left out: conditions usually exclude them, and the compiler speaks up if not.
    ``own_folder`` is `KERNELS` by default.

    Raises:
        CompileError: an include of a ``.cuh`` file that ``own_folder`` does not have.
    """
    key = includes_of(text.encode()), cuda_folder, KERNELS if own_folder is None else own_folder
    found = _reached.get(key)
    if found is None or not found.is_current:
        found = _reached[key] = _reach(*key)
    return found


def _reach(includes: tuple[Include, ...], cuda_folder: Path, own_folder: Path) -> Headers:
    """What includes reach, as the files are now. CUDA's headers include none of warptile's."""
    own: dict[str, tuple[str, Header]] = {}
    cuda: dict[str, tuple[str, Header]] = {}
    looked_up: dict[str, Header | None] = {}

    def look_up(path: str) -> Header | None:
        if path not in looked_up:
            looked_up[path] = INPUTS.header(path)
        return looked_up[path]

    pending = deque(("<source>", quoted, name) for quoted, name in includes)
    while pending:
        includer, quoted, name = pending.popleft()
        if name in own:
            continue
        if includer not in cuda and ".." not in name.split("/"):
            path = os.path.join(own_folder, name)
            header = look_up(path)
            if header is not None:
                own[name] = path, header
                pending.extend((name, *include) for include in header.includes)
                continue
        if name.endswith(".cuh"):
            raise CompileError(
                f'{includer}: #include "{name}" names no file under the kernels folder; write its path relative '
                f'to that folder, such as #include "tile/load.cuh"'
            )
        for folder in [os.path.dirname(includer), ""] if includer in cuda and quoted else [""]:
            found = os.path.normpath(os.path.join(folder, name))
            if found in cuda:
                break
            path = os.path.join(cuda_folder, found)
            header = look_up(path)
            if header is not None:
                cuda[found] = path, header
                pending.extend((found, *include) for include in header.includes)
                break
    return Headers(own, cuda)
