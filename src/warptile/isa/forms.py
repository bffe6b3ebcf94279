"""Data movement and synchronization instructions in their essential forms, and the machine code of each.

Most came with Hopper: bulk and tensor copies by TMA, mbarriers that count bytes, thread block clusters.
`warptile.isa.bulk_copy` and `warptile.isa.synchronization` list them, and ``python -m
warptile.bench.campaign.survey_forms``, which assembles each for each architecture, writes the table beside this file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).resolve().parent / "forms.json"

ARCHITECTURES = ("sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120a")
"""The targets of the table, oldest first. What sm_90a takes and sm_90 does not is for that one architecture."""


@dataclass(frozen=True)
class Form:
    """One instruction with its essential modifiers.

    Attributes:
        name: as PTX spells it, up to what distinguishes this form; ``*`` for any of several modifiers.
        family: heading that it is listed under.
        does: its effect in a few words.
        limits: requirements on its operands, from the PTX ISA.
        example: PTX, with ``<shared>``, ``<peer>``, ``<bar>``, ``<global>``, ``<map>``, ``<x>``, ``<size>``,
            ``<mask>``, ``<word>`` for operands and ``<d>``, ``<state>`` for results.
        since: the first architecture that takes it, by the PTX ISA.
        own: prefix of its machine instructions, where the example needs others as well.
    """

    name: str
    family: str
    does: str
    limits: str
    example: str
    since: str = "sm_90"
    own: str = ""


@dataclass(frozen=True)
class Assembled:
    """What a form becomes on one architecture: machine instructions by name, or the reason why none."""

    machine: tuple[str, ...]
    reason: str = ""

    def __str__(self) -> str:
        return self.reason or " + ".join(self.machine) or "nothing"


@dataclass(frozen=True)
class FormTable:
    """By architecture and name of the form.

    Attributes:
        compiler: the release that assembled them.
        found: what each becomes.
    """

    compiler: str
    found: Mapping[str, Mapping[str, Assembled]]


def to_json(compiler: str, found: Mapping[str, Mapping[str, Assembled]]) -> str:
    """The table's file: for each form, architectures that agree together."""
    rows = []
    for name in found[ARCHITECTURES[0]]:
        kinds: dict[Assembled, list[str]] = {}
        for arch in ARCHITECTURES:
            kinds.setdefault(found[arch][name], []).append(arch)
        cells = [
            {"on": arches, "refused": each.reason} if each.reason else {"on": arches, "machine": each.machine}
            for each, arches in kinds.items()
        ]
        rows.append(f"  {json.dumps(name)}: [\n    " + ",\n    ".join(map(json.dumps, cells)) + "\n  ]")
    head = f'"schema": "warptile.forms/1", "compiler": {json.dumps(compiler)}'
    return f'{{{head},\n"forms": {{\n' + ",\n".join(rows) + "\n}}\n"


@cache
def table() -> FormTable:
    """The table beside this file."""
    read = json.loads(FILE.read_text("utf-8"))
    found: dict[str, dict[str, Assembled]] = {arch: {} for arch in ARCHITECTURES}
    for name, cells in read["forms"].items():
        for cell in cells:
            for arch in cell["on"]:
                found[arch][name] = Assembled(tuple(cell.get("machine", ())), cell.get("refused", ""))
    return FormTable(read["compiler"], found)
