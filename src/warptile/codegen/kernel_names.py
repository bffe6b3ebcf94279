"""Names of kernels: as C++ declares them, as the compiler lowers them, and as people write them."""

from __future__ import annotations

import ctypes
import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, reduce

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
_PARENTHESES = reduce(lambda within, _: rf"\((?:[^()]|{within})*\)", range(4), r"\([^()]*\)")
"""Parentheses, with others in them to five levels."""
_ATTRIBUTE = re.compile(rf"\b__(?!global__)\w+__(?:\s*{_PARENTHESES})?")
_LITERAL = re.compile(r"(?:\([a-z ]+\))?(?<!\w)(-?\d+)[uUlL]*\b")
_LEADING_CONST = re.compile(r"\bconst\s+((?:unsigned\s+|signed\s+|long\s+)*[\w:]+)")


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


@cache
def demangled(lowered: str) -> str:
    """``void gemm<128, float>(float*)`` of ``_Z4gemmILi128EfEvPf``, by the C++ runtime library; a name that is not
    lowered, as it is. Without that library: `plain_name`."""
    if not lowered.startswith("_Z"):
        return lowered
    demangle, free = _runtime()
    if demangle is None or free is None:
        return plain_name(lowered)
    text = demangle(lowered.encode(), None, None, None)
    if not text:
        return plain_name(lowered)
    found = ctypes.string_at(text).decode()
    free(text)
    return found.replace("(anonymous namespace)::", "")


@cache
def _runtime() -> tuple[Callable[..., int | None] | None, Callable[[int], None] | None]:
    """The demangler of the C++ runtime library, which LLVM's Python package needs too, and C's ``free``."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return None, None
    demangle.restype, free.argtypes, free.restype = ctypes.c_void_p, [ctypes.c_void_p], None
    return demangle, free


def spellings(lowered: str) -> tuple[str, ...]:
    """What people may call a kernel, the most exact name first: with template arguments and types of parameters
    (``mine::gemm<128>(float*)``), without the types, and without template arguments, each with and without its
    namespaces."""
    shown, head = demangled(lowered), instance_name(lowered)
    signature = shown[_last_top_level_space(shown[: _top_level(shown, "(")]) :]
    plain = head[: _top_level(head, "<")]
    scope = plain.rfind("::") + 2 if "::" in plain else 0
    return tuple(
        dict.fromkeys((lowered, shown, signature, head, plain, signature[scope:], head[scope:], plain[scope:]))
    )


def instance_name(lowered: str) -> str:
    """``mine::gemm<128>``: a kernel's name with its template arguments, without types."""
    shown = demangled(lowered)
    head = shown[: _top_level(shown, "(")]
    return head[_last_top_level_space(head) :]


def parameter_types(lowered: str) -> tuple[str, ...] | None:
    """``("float*", "int")`` of ``_Z5scalePfi``; None where the name does not say them."""
    shown = demangled(lowered)
    start = _top_level(shown, "(")
    if start == len(shown):
        return None
    rest, types = shown[start + 1 : shown.rindex(")")], []
    while rest:
        end = _top_level(rest, ",")
        types.append(rest[:end].strip())
        rest = rest[end + 1 :]
    return tuple(types)


def _top_level(text: str, mark: str) -> int:
    """Where the first ``mark`` outside angle brackets stands; the end where there is none."""
    depth = 0
    for position, character in enumerate(text):
        if character == mark and not depth:
            return position
        depth += (character in "<(") - (character in ">)")
    return len(text)


def _last_top_level_space(head: str) -> int:
    """Where a name begins behind its return type."""
    depth = 0
    for position in range(len(head) - 1, -1, -1):
        depth += (head[position] in ">)") - (head[position] in "<(")
        if head[position] == " " and not depth:
            return position + 1
    return 0


def _normal(name: str) -> str:
    """A spelling without what makes no difference: blanks, types and suffixes of literals, where ``const`` stands."""
    moved = _LEADING_CONST.sub(r"\1 const", name.replace("(anonymous namespace)::", ""))
    return re.sub(r"\s+", "", _LITERAL.sub(r"\1", moved))


def declared_kernels(text: str) -> Iterator[str]:
    """Kernels that a text declares, as far as can be seen without a compiler: ``gemm``, or ``gemm<...>`` of a template.
    Namespaces are not looked at."""
    plain = _ATTRIBUTE.sub(" ", _COMMENT.sub(" ", text))
    for found in _KERNEL.finditer(plain):
        yield f"{found['name']}<...>" if found["template"] else found["name"]


def named_entry(entries: Sequence[str], name: str | None, known: Sequence[str], why: str = "") -> str:
    """The kernel that a name stands for: one of the `spellings` of one kernel alone.

    Args:
        entries: lowered names of a file's kernels.
        name: that is looked for, or None for the file's only kernel.
        known: what its kernels are called, for messages.
        why: what the compiler says about the name, where it refuses it.

    Raises:
        ArgumentError: none or several have it; the message lists the file's kernels, the nearest first.
    """
    if name is None:
        found = list(entries)
    elif name in entries:
        found = [name]
    else:
        found = [each for each in entries if _normal(name) in map(_normal, spellings(each))]
    if len(found) == 1:
        return found[0]
    got = "entry: left out" if name is None else f"entry: got {name!r}{f' ({why})' if why else ''}"
    if len(found) > 1 and name is not None:
        exact = exact_names(found)
        raise ArgumentError(f"{got}, which stands for {_listed(exact)}; give one of them, such as '{exact[0]}'")
    ordered = _nearest_first(known, name) if name else known
    template = next((each.removesuffix("<...>") for each in ordered if each.endswith("<...>")), None)
    example = next((each for each in ordered if not each.endswith("<...>")), None)
    advice = f"; a template needs its arguments, such as '{template}<128>'" if template else ""
    if not advice and len(ordered) > 1:
        advice = f"; give one of them, such as '{example}'"
    raise ArgumentError(f"{got}; the file has {_listed(ordered) or 'no kernel'}{advice}")


def exact_names(entries: Sequence[str]) -> list[str]:
    """What to call each of some kernels: the shortest spelling that no other one of them has, and else the lowered
    name."""
    every = [spellings(each) for each in entries]
    return [
        min(
            (name for name in names[1:] if sum(name in others for others in every) == 1),
            key=len,
            default=names[0],
        )
        for names in every
    ]


def _nearest_first(names: Sequence[str], name: str) -> list[str]:
    """Names in the order of their likeness to one."""

    def likeness(other: str) -> float:
        return difflib.SequenceMatcher(None, other.split("<")[0].lower(), name.split("<")[0].lower()).ratio()

    return sorted(names, key=likeness, reverse=True)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
