"""PTX and machine instructions of a kernel, by the source line that they come from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from warptile.bench.profiling.source_files import SourceFiles
from warptile.ptx.instruction import PtxModule

ByLine = Mapping[tuple[str, int], Sequence["ListedInstruction"]]
"""Instructions by the file and the line that they come from."""

_SECTION = re.compile(r"\s*\.section\s+\.text\.([\w$.]+)")
_FILE = re.compile(r'\s*//## File "(?P<file>[^"]+)", line (?P<line>\d+)')
_LABEL = re.compile(r"(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<text>.*?)\s*;")


class ListedInstruction(msgspec.Struct, frozen=True):
    """An instruction of a line of source.

    Attributes:
        at: its line in the PTX text, or its address in the machine code of its function, in bytes.
        text: the instruction.
    """

    at: int
    text: str


def ptx_by_line(module: PtxModule, entry: str, files: SourceFiles) -> ByLine:
    """PTX instructions of a kernel and of the functions beside it."""
    found: dict[tuple[str, int], list[ListedInstruction]] = {}
    for name, function in module.functions.items():
        if function.entry and name != entry:
            continue
        for instruction in function.body or ():
            if instruction.location is not None:
                listed = ListedInstruction(instruction.location.ptx_line, " ".join(instruction.text.split()))
                found.setdefault(files.place(instruction.location), []).append(listed)
    return found


def sass_by_line(disassembly: str, entry: str, entries: Sequence[str], files: SourceFiles) -> ByLine:
    """Machine instructions of a kernel and of the functions beside it. What pads them, a branch to itself and NOPs, is
    left out.

    Args:
        disassembly: as `warptile.codegen.nvrtc.disassemble` gives it.
        entry: the kernel's lowered name.
        entries: those of all kernels in it.
        files: that line information names.
    """
    found: dict[tuple[str, int], list[ListedInstruction]] = {}
    place: tuple[str, int] | None = None
    ours, label = False, ""
    for line in disassembly.splitlines():
        if section := _SECTION.match(line):
            ours = section[1] == entry or section[1] not in entries
            place = None
        elif named := _FILE.match(line):
            place = files.name(named["file"]), int(named["line"])
        elif ours and place is not None and (instruction := _INSTRUCTION.match(line)):
            if instruction["text"] not in ("NOP", f"BRA `({label})"):
                listed = ListedInstruction(int(instruction["address"], 16), instruction["text"])
                found.setdefault(place, []).append(listed)
            label = ""
        elif named := _LABEL.match(line):
            label = named[1]
    return found
