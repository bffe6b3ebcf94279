"""Names of kernels: as C++ declares them, as the compiler lowers them, and as people write them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from warptile.errors import ArgumentError

MOST_LISTED = 8
"""Kernels that a message lists."""

_ENTRY = re.compile(rb"^\s*(?:\.visible\s+|\.weak\s+)?\.entry\s+([\w$.]+)", re.M)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_KERNEL = re.compile(
    r"(?P<template>template\s*<[^;{}]*>\s*)?(?:(?:static|inline|extern\s+\"C\")\s+)*"
    r"__global__\s+(?P<head>[^;{}]*?)\b(?P<name>[A-Za-z_]\w*)\s*\((?P<rest>[^;{}]*)[;{]"
)
_ATTRIBUTE = re.compile(r"\b__\w+__\s*\((?:[^()]|\([^()]*\))*\)|\b__\w+__\b(?!\s*\()")
_NESTED = re.compile(r"_ZN((?:\d+[A-Za-z_]\w*?)+)E")


def entries_of(ptx: bytes) -> list[str]:
    """Lowered names of the kernels in PTX."""
    return [found.decode() for found in _ENTRY.findall(ptx)]


def plain_name(lowered: str) -> str:
    """``scale`` of ``_Z5scalePf`` and ``mine::scale`` of ``_ZN4mine5scaleEPf``, of the Itanium C++ ABI; a name that is
    not lowered, as it is. Template arguments are left out."""
    parts = []
    rest = lowered[3:] if lowered.startswith("_ZN") else lowered[2:] if lowered.startswith("_Z") else ""
    while found := re.match(r"\d+", rest):
        end = found.end() + int(found[0])
        parts.append(rest[found.end() : end])
        rest = rest[end:]
        if not lowered.startswith("_ZN"):
            break
    return "::".join(parts) or lowered


def declared_kernels(text: str) -> Iterator[str]:
    """Kernels that a text declares, as far as can be seen without a compiler: ``gemm``, or ``gemm<...>`` of a template.
    Namespaces are not looked at."""
    plain = _ATTRIBUTE.sub(" ", _COMMENT.sub(" ", text).replace("__global__", "@global@")).replace(
        "@global@", "__global__"
    )
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
        raise ArgumentError(f"{got}, which stands for {_listed(found, '')}; give one of them")
    templates = [each for each in known if each.endswith("<...>")]
    advice = f"; a template needs its arguments, such as '{templates[0][:-5]}<128>'" if templates else ""
    raise ArgumentError(f"{got}; the file has {_listed(known, name or '') or 'no kernel'}{advice}")


def _listed(names: Sequence[str], near: str) -> str:
    """Names, those that resemble one first."""

    def unlike(name: str) -> float:
        return -difflib.SequenceMatcher(None, name.split("<")[0].lower(), near.split("<")[0].lower()).ratio()

    ordered = sorted(names, key=unlike) if near else list(names)
    more = len(ordered) - MOST_LISTED
    return ", ".join(ordered[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
