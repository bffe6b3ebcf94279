"""Tables of docs/isa.md: what instructions become, and lists of shapes checked against it.

T1 is "tensor cores from WMMA to WGMMA". What it says of types and shapes is data here, beside shapes of the PTX ISA
that it leaves out; what assembled code shows comes from `warptile.isa.machine_code`, and a claim that it contradicts
must have a sentence that names the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from warptile.bench.report.markdown import markdown
from warptile.isa import forms, machine_code
from warptile.isa.catalogue import FORMS, assembled, by_name, multiplications
from warptile.isa.machine_code import ARCHITECTURES, MachineCodeTable
from warptile.isa.summary import rows

A100, TURING, HOPPER = "sm_80", "sm_75", "sm_90a"
T1, PTX_ISA = "T1", "PTX ISA"


@dataclass(frozen=True)
class IsaClaim:
    """What a text says of some instructions.

    Attributes:
        said: in few words.
        names: the instructions, as warptile calls them.
        native: architectures on which they are native, by the claim.
        absent: architectures on which they are not, by the claim.
        difference: what the assembled code shows instead, "" where it agrees.
        source: T1, or the PTX ISA for what T1 leaves out.
    """

    said: str
    names: tuple[str, ...]
    native: tuple[str, ...] = (A100,)
    absent: tuple[str, ...] = ()
    difference: str = ""
    source: str = T1

    def contradictions(self, table: MachineCodeTable) -> Iterator[str]:
        """Each instruction and architecture for which the table shows something else."""
        for arch in ARCHITECTURES:
            for name in self.names:
                status = table.of(arch, name).status
                wrong = status != "native" if arch in self.native else status == "native" and arch in self.absent
                if wrong:
                    yield f"{name} is {status} on {arch}"


def _named(prefix: str, *types: str) -> tuple[str, ...]:
    return tuple(f"{prefix}.{each}" for each in types)


_WMMA_SHAPES = ("m16n16k16", "m32n8k16", "m8n32k16")
_BITS = tuple(f"mma.{shape}.s32.b1.{bit}" for shape in ("m8n8k128", "m16n8k128", "m16n8k256") for bit in ("xor", "and"))
_SPARSE = tuple(
    each.name
    for each in multiplications()
    if each.family == "mma.sp" and each.capability == 80 and each.types[1] == each.types[2]
)

CLAIMS = (
    IsaClaim("mma f16: m16n8k8 and m16n8k16, f16 or f32 accumulators",
             (*_named("mma.m16n8k8", "f16.f16", "f32.f16"), *_named("mma.m16n8k16", "f16.f16", "f32.f16"))),
    IsaClaim("mma bf16: m16n8k8 and m16n8k16", ("mma.m16n8k8.f32.bf16", "mma.m16n8k16.f32.bf16")),
    IsaClaim("mma tf32: m16n8k4 and m16n8k8", ("mma.m16n8k4.f32.tf32", "mma.m16n8k8.f32.tf32")),
    IsaClaim("mma INT8: m16n8k16 and m16n8k32",
             (*_named("mma.m16n8k16", "s32.s8", "s32.u8"), *_named("mma.m16n8k32", "s32.s8", "s32.u8"))),
    IsaClaim("mma INT4: m16n8k32 and m16n8k64",
             (*_named("mma.m16n8k32", "s32.s4", "s32.u4"), *_named("mma.m16n8k64", "s32.s4", "s32.u4"))),
    IsaClaim("INT4 lives on in Hopper", _named("mma.m16n8k64", "s32.s4", "s32.u4"), (A100, HOPPER),
             difference="The instruction does, the unit does not: since Hopper nibbles are unpacked to bytes and two "
             "IMMA of INT8 multiply them, at a fraction of INT8's rate."),
    IsaClaim("INT1 is gone after Turing", _BITS[:2], (TURING,), tuple(a for a in ARCHITECTURES if a != TURING),
             difference="It is not: Turing has XOR of m8n8k128 alone, Ampere and Ada have AND and larger shapes too. "
             "Hopper multiplies AND natively and makes XOR of two ANDs. It is gone with Blackwell, where IMMA of INT8 "
             "stands in."),
    IsaClaim("mma b1: m8n8k128, m16n8k128 and m16n8k256", _BITS, source=PTX_ISA),
    IsaClaim("mma f64: m8n8k4", ("mma.m8n8k4.f64.f64",)),
    IsaClaim("mma f64 on Hopper: m16n8k4, m16n8k8 and m16n8k16", tuple(f"mma.m16n8k{k}.f64.f64" for k in (4, 8, 16)),
             (HOPPER,), tuple(a for a in ARCHITECTURES[: ARCHITECTURES.index(HOPPER)]), source=PTX_ISA),
    IsaClaim("wmma f16: m16n16k16, m32n8k16 and m8n32k16, f16 or f32 accumulators",
             tuple(f"wmma.{shape}.{types}" for shape in _WMMA_SHAPES for types in ("f16.f16", "f32.f16")),
             (TURING, A100)),
    IsaClaim("wmma bf16: m16n16k16", ("wmma.m16n16k16.f32.bf16",)),
    IsaClaim("wmma INT8: m16n16k16", ("wmma.m16n16k16.s32.s8", "wmma.m16n16k16.s32.u8")),
    IsaClaim("wmma bf16 and INT8: m32n8k16 and m8n32k16",
             tuple(f"wmma.{shape}.{types}" for shape in _WMMA_SHAPES[1:] for types in ("f32.bf16", "s32.s8", "s32.u8")),
             source=PTX_ISA),
    IsaClaim("wmma tf32: m16n16k8", ("wmma.m16n16k8.f32.tf32",)),
    IsaClaim("wmma f64: m8n8k4", ("wmma.m8n8k4.f64.f64",)),
    IsaClaim("wmma INT4: m8n8k32", ("wmma.m8n8k32.s32.s4", "wmma.m8n8k32.s32.u4")),
    IsaClaim("wmma INT1: m8n8k128", ("wmma.m8n8k128.s32.b1.xor", "wmma.m8n8k128.s32.b1.and"), source=PTX_ISA),
    IsaClaim("mma.sp: 2:4 structured sparsity", _SPARSE),
)  # fmt: skip
"""What is said of types and shapes. T1 is a guide to the A100: shapes are held to sm_80 where no other is named."""


def isa_table() -> str:
    """Every instruction, in short."""
    table = machine_code.table()
    header = ("instruction", "A, B", "D", *ARCHITECTURES)
    made = [
        (f"`{row.instruction}`", row.operands, row.accumulators, *(cell.replace("*", "\\*") for cell in row.cells))
        for row in rows(table, assembled())
    ]
    return markdown(header, made, right=len(header)) + f"\n*As assembled by {table.compiler}.*\n"


def forms_table() -> str:
    """Every copy and every instruction of synchronisation: what it does, asks for and becomes."""
    table = forms.table()
    made = []
    for form in FORMS:
        found = {arch: table.found[arch][form.name] for arch in forms.ARCHITECTURES}
        takes = [arch for arch in forms.ARCHITECTURES if not found[arch].reason]
        machine = str(found[HOPPER]).replace(" + ", "` + `")
        made.append((f"`{form.name}`", form.does, form.limits, takes[0], f"`{machine}`"))
    header = ("instruction", "what it does", "requirements", "first supported by", HOPPER)
    return markdown(header, made, right=len(header)) + f"\n*As assembled by {table.compiler}.*\n"


def claims_table() -> str:
    """Lists of shapes, each claim with its source and what the assembled code shows."""
    table = machine_code.table()
    made = []
    for claim in CLAIMS:
        shown = rows(table, [by_name()[name] for name in claim.names])
        cells = [
            " / ".join(dict.fromkeys(row.cells[column] for row in shown)).replace("*", "\\*")
            for column in range(len(ARCHITECTURES))
        ]
        made.append((claim.source, claim.said, *cells, claim.difference or "agrees"))
    header = ("source", "shapes", *ARCHITECTURES, "difference")
    return markdown(header, made, right=len(header)) + f"\n*As assembled by {table.compiler}.*\n"
