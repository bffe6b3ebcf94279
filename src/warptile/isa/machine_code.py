"""Which architecture multiplies what on its tensor cores, and what the assembler makes of the rest.

The table beside this file was made by ``python -m warptile.bench.campaign.survey_machine_code``: every instruction
assembled for every
architecture, disassembled and counted. Of ``wgmma``, which is one machine instruction whatever n is, it has one n of
each combination of types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from warptile.isa.catalogue import GROUP_COLUMNS, Multiplication, assembled

FILE = Path(__file__).resolve().parent / "machine_code.json"

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
"""The targets of the table, oldest first."""

FAMILY_SPECIFIC = 100
"""From this compute capability (times ten) on, what is new is for one family of GPUs each. Newer ones may lack it, and
there are no C++ wrappers of it."""

Status = Literal["native", "emulated", "refused"]


@dataclass(frozen=True)
class Outcome:
    """What one instruction becomes on one architecture.

    Attributes:
        tensor: tensor-core machine instructions, and how many of each.
        other: other machine instructions that take part, by their first word, and how many of each.
        reason: what the assembler said when it took none of it.
    """

    tensor: Mapping[str, int]
    other: Mapping[str, int]
    reason: str = ""

    @property
    def status(self) -> Status:
        """``native``: tensor cores do all of it; ``emulated``: other instructions take part; ``refused``."""
        if self.reason:
            return "refused"
        return "emulated" if self.other or not self.tensor else "native"

    def __str__(self) -> str:
        if self.reason:
            return self.reason
        made = [f"{count} {name}" if count > 1 else name for name, count in self.tensor.items()]
        return " + ".join([*made, *([f"{sum(self.other.values())} other"] if self.other else [])])

    @property
    def in_full(self) -> str:
        """The same, followed by all other instructions that take part."""
        others = ", ".join(f"{count} {name}" for name, count in self.other.items())
        return f"{self}: {others}" if others else str(self)


@dataclass(frozen=True)
class MachineCodeTable:
    """What every instruction becomes, by architecture and name.

    Attributes:
        compiler: the release that assembled them.
        outcomes: by architecture, then by the name of the instruction.
    """

    compiler: str
    outcomes: Mapping[str, Mapping[str, Outcome]]

    def of(self, arch: str, name: str) -> Outcome:
        """What the instruction called ``name`` becomes on ``arch``."""
        return self.outcomes[arch][name]

    def of_group(self, arch: str, name: str) -> Outcome:
        """The same of any ``wgmma``, such as ``wgmma.m64n256k16.f32.f16``."""
        found = self.of(arch, re.sub(r"m64n\d+k", f"m64n{GROUP_COLUMNS}k", name))
        n = re.findall(r"m64n(\d+)k", name)[0]
        made = {machine.replace(f"64x{GROUP_COLUMNS}x", f"64x{n}x"): count for machine, count in found.tensor.items()}
        return Outcome(made, found.other, found.reason)


def to_json(compiler: str, table: Mapping[str, Mapping[Multiplication, Outcome]]) -> str:
    """The table's file: distinct outcomes once, and for each instruction its outcome on each architecture."""
    distinct: dict[str, int] = {}

    def number(outcome: Outcome) -> int:
        plain: dict[str, Any] = {"tensor": outcome.tensor, "other": outcome.other}
        text = json.dumps({"refused": outcome.reason} if outcome.reason else plain)
        return distinct.setdefault(text, len(distinct))

    rows = ",\n".join(
        f"  {json.dumps(each.name)}: {[number(table[arch][each]) for arch in ARCHITECTURES]}" for each in assembled()
    )
    outcomes = ",\n".join(f"  {text}" for text in distinct)
    head = f'"schema": "warptile.native/1", "compiler": {json.dumps(compiler)}'
    columns = f'"architectures": {json.dumps(ARCHITECTURES)}'
    return f'{{{head},\n{columns},\n"outcomes": [\n{outcomes}\n],\n"instructions": {{\n{rows}\n}}}}\n'


@cache
def table() -> MachineCodeTable:
    """The table beside this file."""
    read = json.loads(FILE.read_text("utf-8"))
    outcomes = [
        Outcome({}, {}, each["refused"]) if "refused" in each else Outcome(each["tensor"], each["other"])
        for each in read["outcomes"]
    ]
    return MachineCodeTable(
        read["compiler"],
        {
            arch: {name: outcomes[numbers[column]] for name, numbers in read["instructions"].items()}
            for column, arch in enumerate(read["architectures"])
        },
    )
