"""The headers that a user's CUDA C++ file includes from beside it or from ``-I`` folders, CUDA's own left aside, and
their text without host code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from warptile.codegen.inputs import includes_of


@dataclass
class OwnHeader:
    """A header.

    Attributes:
        path: where it lies.
        text: what it holds, or what is left of that.
        spellings: how ``#include`` directives name it.
    """

    path: Path
    text: bytes
    spellings: set[str] = field(default_factory=set)


def own_headers(
    path: Path, text: bytes, folders: Sequence[Path], is_cuda: Callable[[Path], bool]
) -> dict[Path, OwnHeader]:
    """The headers that a file reaches, by path, in the order in which they are met.

    Args:
        path, text: the file.
        folders: where headers are looked for, besides the folder of the file that includes one.
        is_cuda: whether a folder is one of CUDA's.
    """
    found: dict[Path, OwnHeader] = {}
    pending = [(path, text)]
    searched = [folder for folder in folders if not is_cuda(folder)]
    while pending:
        includer, content = pending.pop()
        for _, name in includes_of(content):
            at = next((each for each in _candidates(includer, name, searched) if each.is_file()), None)
            if at is None or at == path:
                continue
            if at not in found:
                found[at] = OwnHeader(at, at.read_bytes())
                pending.append((at, found[at].text))
            found[at].spellings.add(name)
    return found


def _candidates(includer: Path, name: str, folders: Sequence[Path]) -> Iterator[Path]:
    return ((folder / name).resolve() for folder in (includer.parent, *folders))


def in_memory(changed: Sequence[OwnHeader], all_headers: Mapping[Path, OwnHeader]) -> dict[str, bytes]:
    """Changed headers as NVRTC takes them in the place of files: by the names of ``#include`` directives.

    A name that also stands for another file is left to the files. Each text says where it lies, for messages and line
    information, and counts once: to NVRTC, two names are two files, whatever ``#pragma once`` says.
    """
    owners: dict[str, set[Path]] = {}
    for header in all_headers.values():
        for name in header.spellings:
            owners.setdefault(name, set()).add(header.path)
    made: dict[str, bytes] = {}
    for number, header in enumerate(changed):
        once = b"#pragma once" in header.text
        guard = b"WARPTILE_INCLUDED_%d" % number
        before = b"#ifndef %b\n#define %b\n" % (guard, guard) if once else b""
        after = b"\n#endif\n" if once else b""
        text = before + b'#line 1 "%b"\n' % str(header.path).encode() + header.text + after
        made |= {name: text for name in sorted(header.spellings) if owners[name] == {header.path}}
    return made
