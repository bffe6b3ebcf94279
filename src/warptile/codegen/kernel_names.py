"""Names of kernels: as C++ declares them, as the compiler lowers them, and as people write them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from warptile.errors import ArgumentError

MOST_LISTED = 8
"""Kernels that a message lists."""

_UNNAMED = "_GLOBAL__N_"
"""What the compiler's name of an unnamed namespace begins with."""

_ENTRY = re.compile(rb"^\s*(?:\.visible\s+|\.weak\s+)?\.entry\s+([\w$.]+)", re.M)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_KERNEL = re.compile(
    r"(?P<template>template\s*<[^;{}]*>\s*)?(?:(?:static|inline|extern\s+\"C\")\s+)*"
    r"__global__\s+(?P<head>[^;{}]*?)\b(?P<name>[A-Za-z_]\w*)\s*\((?P<rest>[^;{}]*)[;{]"
)
_ATTRIBUTE = re.compile(r"\b__(?!global__)\w+__(?:\s*\((?:[^()]|\([^()]*\))*\))?")


def entries_of(ptx: bytes) -> list[str]:
    """Lowered names of the kernels in PTX."""
    return [found.decode() for found in _ENTRY.findall(ptx)]


def plain_name(lowered: str) -> str:
    """``scale`` of ``_Z5scalePf`` and ``mine::scale`` of ``_ZN4mine5scaleEPf``, of the Itanium C++ ABI; a name that is
    not lowered, as it is. Template arguments are left out."""
    parts = []
    nested = lowered.startswith("_ZN")
    rest = (lowered[3:] if nested else lowered[2:].removeprefix("L")) if lowered.startswith("_Z") else ""
    while found := re.match(r"\d+", rest):
        end = found.end() + int(found[0])
        parts.append(rest[found.end() : end])
        rest = rest[end:]
        if not nested:
            break
    return "::".join(part for part in parts if not part.startswith(_UNNAMED)) or lowered


def declared_kernels(text: str) -> Iterator[str]:
    """Kernels that a text declares, as far as can be seen without a compiler: ``gemm``, or ``gemm<...>`` of a template.
    Namespaces are not looked at."""
    plain = _ATTRIBUTE.sub(" ", _COMMENT.sub(" ", text))
    for found in _KERNEL.finditer(plain):
        yield f"{found['name']}<...>" if found["template"] else found["name"]


def named_entry(entries: Sequence[str], name: str | None, known: Sequence[str]) -> str:
    """The kernel that a name stands for: a lowered name, or a plain one that only one has.

    Args:
        entries: lowered names of a file's kernels.
        name: that is looked for, or None for the file's only kernel.
        known: what its kernels are called, for messages.

    Raises:
        ArgumentError: none or several have it; the message lists the file's kernels, the nearest first.
    """
    if name is None:
        found = list(entries)
    elif name in entries:
        found = [name]
    else:
        found = [each for each in entries if name in (plain_name(each), plain_name(each).split("::")[-1])]
    if len(found) == 1:
        return found[0]
    got = "left out" if name is None else f"got {name!r}"
    if len(found) > 1 and name is not None:
        raise ArgumentError(f"{got}, which stands for {_listed(found)}; give one of them")
    ordered = _nearest_first(known, name) if name else known
    template = next((each.removesuffix("<...>") for each in ordered if each.endswith("<...>")), None)
    advice = f"; a template needs its arguments, such as '{template}<128>'" if template else ""
    raise ArgumentError(f"{got}; the file has {_listed(ordered) or 'no kernel'}{advice}")


def _nearest_first(names: Sequence[str], name: str) -> list[str]:
    """Names in the order of their likeness to one."""

    def likeness(other: str) -> float:
        return difflib.SequenceMatcher(None, other.split("<")[0].lower(), name.split("<")[0].lower()).ratio()

    return sorted(names, key=likeness, reverse=True)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
