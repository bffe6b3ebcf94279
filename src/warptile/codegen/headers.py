"""Which headers a kernel source reaches, and where CUDA's own headers and programs are.

warptile's kernel headers travel to the compiler in memory, so a machine's folders never show in its output;
CUDA's headers come from the wheels' include folder, or from a toolkit where the wheels lack some.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from warptile.errors import CompileError

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
"""Folder of warptile's CUDA C++; every ``#include "..."`` in it is written relative to this folder."""

NEEDED = ("cuda_fp16.h", "cuda_bf16.h", "mma.h", "crt/mma.h", "vector_types.h", "cuda.h")
"""CUDA headers that the kernels cannot do without; ``crt/mma.h`` comes in a separate wheel, ``nvidia-cuda-crt``."""

INSTALL = "python3 -m pip install 'cuda-toolkit[crt,cudart,nvrtc]>=13.0,<14'"
"""The command that installs NVRTC and all the headers that it needs."""

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.MULTILINE)


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
        own: warptile's headers, include name to content, in the order in which they are met.
        cuda: CUDA's headers, name relative to its folder to content.
    """

    own: Mapping[str, bytes]
    cuda: Mapping[str, bytes]


def wheel_folders() -> Iterator[Path]:
    """Folders of CUDA's wheels (with ``include``, ``lib``, ``bin`` in them), newest release first."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        spec = None
    for parent in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(parent).glob("cu1[3-9]"), reverse=True)


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
        found = re.search(rb"#define[ \t]+CUDA_VERSION[ \t]+(\d+)", (folder / "cuda.h").read_bytes())
        if found:
            release = (int(found[1]) // 1000, int(found[1]) % 1000 // 10)
    except OSError:
        pass
    return IncludeFolder(folder, release, tuple(name for name in NEEDED if not (folder / name).is_file()))


def candidates() -> tuple[IncludeFolder, ...]:
    """Every folder with CUDA headers on this machine, in order of preference, complete or not."""
    seen = dict.fromkeys(folder for folder in _folders() if folder.is_dir())
    return tuple(_inspect(folder) for folder in seen)


def cuda_include_folder(nvrtc_major: int) -> Path:
    """The first folder that has every needed header of CUDA release ``nvrtc_major``.

    Raises:
        CompileError: there is none; the message lists what each folder lacks and the command that installs them.
    """
    looked_at = candidates()
    for folder in looked_at:
        if not folder.missing and folder.release is not None and folder.release[0] == nvrtc_major:
            return folder.path
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


@lru_cache(maxsize=512)
def _content(path: str, _modified_ns: int, _size: int) -> tuple[bytes, tuple[tuple[bool, str], ...]]:
    """Content of a file and its includes as ``(quoted, name)``; the stat values make an edited file a new one."""
    content = Path(path).read_bytes()
    return content, _includes(content)


def _includes(content: bytes) -> tuple[tuple[bool, str], ...]:
    return tuple((quote == b'"', name.decode()) for quote, name in _INCLUDE.findall(content))


def _read(path: Path) -> tuple[bytes, tuple[tuple[bool, str], ...]]:
    stat = path.stat()
    return _content(str(path), stat.st_mtime_ns, stat.st_size)


def reachable(text: str, cuda_folder: Path, own_folder: Path | None = None) -> Headers:
    """All headers that ``text`` includes, directly or through others, whatever the preprocessor's conditions.

    Includes that neither folder has are left out: conditions usually exclude them, and the compiler speaks up if not.
    ``own_folder`` is `KERNELS` by default.

    Raises:
        CompileError: an include of a ``.cuh`` file that ``own_folder`` does not have.
    """
    own_folder = KERNELS if own_folder is None else own_folder
    own: dict[str, bytes] = {}
    cuda: dict[str, bytes] = {}
    pending = [("<source>", quoted, name) for quoted, name in _includes(text.encode())]
    while pending:
        includer, quoted, name = pending.pop(0)
        if name in own:
            continue
        if ".." not in Path(name).parts and (own_folder / name).is_file():
            own[name], nested = _read(own_folder / name)
            pending += [(name, *include) for include in nested]
            continue
        if name.endswith(".cuh"):
            raise CompileError(
                f'{includer}: #include "{name}" names no file under the kernels folder; write its path relative '
                f'to that folder, such as #include "tile/load.cuh"'
            )
        folders = [Path(includer).parent, Path()] if includer in cuda and quoted else [Path()]
        for folder in folders:
            found = os.path.normpath(folder / name)
            if found in cuda:
                break
            if (cuda_folder / found).is_file():
                cuda[found], nested = _read(cuda_folder / found)
                pending += [(found, *include) for include in nested]
                break
    return Headers(own, cuda)
