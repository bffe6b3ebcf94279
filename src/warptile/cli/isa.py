"""``warptile isa``: the tables of tensor-core and copy instructions, and pictures of fragments."""

from __future__ import annotations

import colorsys
import difflib
import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec
from rich.color import Color
from rich.console import Console
from rich.markup import escape
from rich.style import Style
from rich.text import Text

from warptile.cli import _isa_forms, _isa_pages
from warptile.cli._names import one_of
from warptile.cli._tables import Column, console_of, said_of, show
from warptile.isa import machine_code, operand_drawings, wgmma
from warptile.isa.catalogue import FORMS, Multiplication, assembled, by_name, group_multiplications
from warptile.isa.drawing import CELL_WIDTH, MAX_WIDTH, Drawing, places
from warptile.isa.forms import Form
from warptile.isa.matrix_move import MatrixMove, moves
from warptile.isa.summary import cell, rows

TABLE_WIDTH = 120
"""Columns of a table that is not written to a terminal."""

NAME_WIDTH, OPERANDS_WIDTH, MACHINE_WIDTH, WORDS_WIDTH = 30, 12, 20, 14
"""Names, lists and machine code are folded to no less."""

FIRST_TO_GO = {"sm_86": 6, "sm_75": 5, "sm_100a": 4, "sm_89": 3, "sm_120a": 2, "sm_80": 1}
"""Architectures whose columns are left out of a narrow table, the highest first."""

LANES = 32
NEAR = 6
"""Names that are offered for one that is unknown."""

_STYLES = {"native": "green", "emulated": "yellow", "refused": "dim"}


@click.command("isa")
@click.argument("name", required=False)
@click.option(
    "--arch",
    type=one_of(*machine_code.ARCHITECTURES),
    help="One architecture: its machine code in full. [all, in short]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--html", "page", is_flag=False, flag_value=_isa_pages.HERE, metavar="[FILE|FOLDER]",
              help="Write a page with figures: of one instruction into FILE, of several into FOLDER, with an index. "
              "[NAME.html, or the folder isa]")  # fmt: skip
def command(name: str | None, arch: str | None, as_json: bool, page: str | None) -> None:
    """Show tensor-core instructions and who holds what.

    Without NAME, lists them all with what each becomes on each architecture. With the name of one, such as
    wmma.m16n16k16.f32.f16, ldmatrix.x4.trans or wgmma.m64n128k16.f32.f16, draws its fragments. With the beginning of
    names, such as mma.sp, lists those. The same goes for copies and synchronization: cp.async.bulk.tensor,
    mbarrier.try_wait, or a family of them, such as tensor-copy.

    \b
    Examples:
      warptile isa mma.m16n8k16.f32.f16
      warptile isa mma.sp --arch sm_90a
      warptile isa tensor-copy --json
      warptile isa ldmatrix.x4 --html
      warptile isa --html isa-pages
    """
    if page is not None:
        if as_json or arch is not None:
            other = "--json" if as_json else "--arch"
            raise click.UsageError(f"--html and {other}: a page has every architecture; leave out one of the two")
        _isa_pages.write(name, page, unknown)
        return
    if name in by_name():
        show_multiplication(by_name()[name], arch, as_json=as_json)
    elif name in moves():
        show_move(name, *moves()[name], as_json=as_json)
    elif name in wgmma.by_name():
        show_group(name, *wgmma.by_name()[name], as_json=as_json)
    elif name in ("wgmma", "wgmma.sp"):
        show_group_table(name, as_json=as_json)
    elif name is not None and _isa_forms.named(name):
        show_forms(_isa_forms.named(name), as_json=as_json)
    else:
        chosen = [each for each in assembled() if name is None or f"{each.name}.".startswith(f"{name}.")]
        if not chosen:
            raise click.UsageError(unknown(str(name)))
        show_table(chosen, arch, FORMS if name is None else (), as_json=as_json)
        if name is None and not as_json and arch is None:
            show_forms(FORMS, as_json=False)


def unknown(name: str) -> str:
    """What to say about a name that is none."""
    known = [*by_name(), *moves(), *wgmma.by_name(), *(form.name for form in FORMS)]
    near = difflib.get_close_matches(name, known, n=NEAR, cutoff=0.5)
    offered = f"did you mean {', '.join(near)}?" if near else "names are such as mma.m16n8k16.f32.f16 or ldmatrix.x4."
    return f"no instruction is called {name!r}; {offered} `warptile isa` lists them all"


# -- the table ---------------------------------------------------------------------------------------------------------


def show_table(
    chosen: Sequence[Multiplication], arch: str | None, forms: Sequence[Form] = (), *, as_json: bool
) -> None:
    """List instructions: in short for every architecture, or with their machine code on one.

    ``forms`` are for the JSON document alone.
    """
    known = machine_code.table()
    if as_json:
        document = {"schema": "warptile.isa/1", "compiler": known.compiler}
        described = {"instructions": [facts(each, arch) for each in chosen]}
        write({**document, **described, **({"forms": [_isa_forms.facts(each) for each in forms]} if forms else {})})
        return
    if arch is None:
        summary = rows(known, chosen)
        columns = [
            Column("instruction", [row.instruction for row in summary], left=True, least=NAME_WIDTH),
            Column("A, B", [row.operands for row in summary], left=True, least=OPERANDS_WIDTH),
            Column("D", [row.accumulators for row in summary], left=True),
        ]
        for place, each in enumerate(machine_code.ARCHITECTURES):
            styles = [_STYLES[known.of(each, row.names[0]).status] for row in summary]
            cells = [f"[{style}]{row.cells[place]}[/]" for style, row in zip(styles, summary, strict=True)]
            columns.append(Column(each.removeprefix("sm_"), cells, rank=FIRST_TO_GO.get(each, 0), left=True))
        legend = "* with other instructions, such as those that unpack operands; – refused by the assembler"
    else:
        outcomes = [known.of(arch, each.name) for each in chosen]
        columns = [
            Column("instruction", [each.name for each in chosen], left=True, least=NAME_WIDTH),
            Column("", [f"[{_STYLES[each.status]}]{each.status}[/]" for each in outcomes], left=True),
            Column(arch, [escape(each.in_full) for each in outcomes], left=True, least=MACHINE_WIDTH),
        ]
        legend = "native: tensor cores alone; emulated: other instructions take part; refused: what the assembler says"
    console = console_of(TABLE_WIDTH)
    left_out = show(console, "", columns)
    console.print()
    for line in said_of(left_out, "--arch shows one architecture in full"):
        console.print(line, markup=False, highlight=False)
    console.print(f"{legend}.\nAs assembled by {known.compiler}.", markup=False, highlight=False)


def facts(instruction: Multiplication, arch: str | None) -> dict[str, Any]:
    """One instruction as plain data."""
    known = machine_code.table()
    outcomes = {}
    for each in machine_code.ARCHITECTURES if arch is None else (arch,):
        outcome = known.of(each, instruction.name)
        outcomes[each] = {
            "status": outcome.status, "tensor": outcome.tensor, "other": outcome.other, "reason": outcome.reason or None
        }  # fmt: skip
    return {
        "name": instruction.name,
        "opcode": instruction.opcode,
        "types": dict(zip("dabc", instruction.types, strict=True)),
        "capability": instruction.capability,
        "outcomes": outcomes,
    }


# -- fragments ---------------------------------------------------------------------------------------------------------


def show_multiplication(instruction: Multiplication, arch: str | None, *, as_json: bool) -> None:
    """Draw A, B and C of one instruction."""
    capability = int(arch.strip("sm_af")) if arch else None
    layouts = operand_drawings.multiplication_layouts(instruction, capability)
    if as_json:
        fragments = {matrix: places(layout) for matrix, layout in layouts.items()}
        write({"schema": "warptile.isa/1", **facts(instruction, arch), "fragments": fragments})
        return
    known = machine_code.table()
    console = console_of(MAX_WIDTH)
    heading(console, instruction.name, instruction.opcode, instruction.capability)
    for each in machine_code.ARCHITECTURES if arch is None else (arch,):
        outcome = known.of(each, instruction.name)
        said = f"  {each:8} {cell(outcome) if outcome.status == 'refused' else outcome}"
        console.print(Text(said, style=_STYLES[outcome.status]))
    for drawing in operand_drawings.of_multiplication(instruction, layouts).values():
        paint(console, drawing)


def show_move(name: str, move: MatrixMove, count: int, transposed: bool, *, as_json: bool) -> None:
    """Draw the matrices of one ldmatrix, stmatrix or movmatrix."""
    layout = move.fragment(count, transposed=transposed)
    opcode = move.opcode(count, transposed=transposed)
    if as_json:
        facts_of_move = {"name": name, "opcode": opcode, "capability": move.capability}
        write({"schema": "warptile.isa/1", **facts_of_move, "fragments": {"r": places(layout)}})
        return
    console = console_of(MAX_WIDTH)
    heading(console, name, opcode, move.capability)
    paint(console, operand_drawings.of_move(move, count, transposed))
    console.print(Text(f"  {operand_drawings.note_of_move(move)}", style="dim"))


# -- copies and synchronisation ---------------------------------------------------------------------------------------


def show_forms(forms: Sequence[Form], *, as_json: bool) -> None:
    """List forms, or show the only one."""
    if as_json:
        write({"schema": "warptile.isa/1", "forms": [_isa_forms.facts(each) for each in forms]})
    elif len(forms) == 1:
        _isa_forms.show(console_of(MAX_WIDTH), forms[0])
    else:
        _isa_forms.show_list(console_of(TABLE_WIDTH), forms)


# -- warpgroups -------------------------------------------------------------------------------------------------------


def show_group_table(family: str, *, as_json: bool) -> None:
    """List the shapes and types of wgmma, or of its sparse form."""
    chosen = {name: each for name, each in wgmma.by_name().items() if name.startswith(f"{family}.m")}
    if as_json:
        facts = [group_facts(name, *each) for name, each in chosen.items()]
        write({"schema": "warptile.isa/1", "instructions": facts})
        return
    shown = []
    is_sparse = family == "wgmma.sp"
    for each in wgmma.FAMILIES:
        if is_sparse <= each.sparse:
            columns = "8 to 256, by 8" if each.columns == wgmma.EVERY_EIGHT else "8, 16, 24, 32 to 256 by 16"
            flags = ("yes" if flag else "" for flag in (each.transposable, each.negatable, each.saturates))
            shape = wgmma.GroupShape(each, 8, sparse=is_sparse).name.replace("n8k", "nNk")
            shown.append((f"{family}.{shape}", ", ".join(each.types), ", ".join(each.results), columns, *flags))
    show_table(
        [each for each in group_multiplications() if (each.family == "wgmma.sp") >= is_sparse], None, as_json=False
    )
    console = console_of(TABLE_WIDTH)
    headings = ("instruction", "A, B", "D", "n", "MN-major", "negated", "satfinite")
    show(console, "", [
        Column(heading, cells, left=True, least=WORDS_WIDTH if heading == "n" else 0)
        for heading, cells in zip(headings, zip(*shown, strict=True), strict=True)
    ])  # fmt: skip
    console.print()
    console.print("For sm_90a alone: one machine instruction, which the four warps execute together.")


def group_facts(name: str, shape: wgmma.GroupShape, types: tuple[str, str, str]) -> dict[str, Any]:
    """One instruction as plain data."""
    return {
        "name": name, "opcode": shape.opcode(types), "types": dict(zip("dab", types, strict=True)),
        "capability": wgmma.CAPABILITY, "registers": {"d": shape.registers(types[0]), "a": shape.fragment().registers},
        "machine": str(machine_code.table().of_group(wgmma.ARCH, name)),
    }  # fmt: skip


def show_group(name: str, shape: wgmma.GroupShape, types: tuple[str, str, str], *, as_json: bool) -> None:
    """Draw A and D of the first warp of a warpgroup."""
    held, columns = operand_drawings.group_layouts(shape, types)
    if as_json:
        fragments = {"a": places(held), "d": places(columns)}
        write({"schema": "warptile.isa/1", **group_facts(name, shape, types), "fragments": fragments})
        return
    console = console_of(MAX_WIDTH)
    heading(console, name, shape.opcode(types), wgmma.CAPABILITY)
    console.print(Text(f"  {wgmma.ARCH:8} {machine_code.table().of_group(wgmma.ARCH, name)}", style=_STYLES["native"]))
    for drawing in operand_drawings.of_group(shape, types).values():
        paint(console, drawing)
    said = operand_drawings.note_of_group(shape, types)
    console.print(f"  {said}", style="dim", markup=False, highlight=False)


def heading(console: Console, name: str, opcode: str, capability: int) -> None:
    """The lines above the drawings."""
    console.print(Text(name, style="bold"), Text(opcode), f"since sm_{capability}", sep="\n", highlight=False)


def paint(console: Console, drawing: Drawing) -> None:
    """Print a grid, every lane in a colour of its own."""
    corner, labels = f"{drawing.down[0]}\\{drawing.across[0]}", drawing.down[1]
    margin = max(len(corner), *(len(label) for label in labels))
    console.print()
    console.print(Text(drawing.title, style="bold"))
    head = Text().append(f"{corner:>{margin}} ", style="dim")
    for label in drawing.across[1]:
        head.append(f"{label:^{CELL_WIDTH}}"[:CELL_WIDTH], style="dim")
    print_line(console, head)
    for label, cells in zip(labels, drawing.cells, strict=True):
        line = Text().append(f"{label:>{margin}} ", style="dim")
        for each in cells:
            text = f"{each.lane:>2} {each.register}"
            line.append(f"{text:<{CELL_WIDTH}}", style=Style(color=LANE_COLOURS[each.lane]))
        print_line(console, line)
    for note in drawing.notes:
        console.print(Text(f"  {note}", style="dim"))


def print_line(console: Console, line: Text) -> None:
    """A line of a grid, whatever the width: folded it could not be read."""
    line.rstrip()
    console.print(line, no_wrap=True, overflow="ignore", crop=False)


def colour(lane: int) -> Color:
    """Eight hues for the groups of four lanes, four shades within."""
    red, green, blue = colorsys.hsv_to_rgb(lane // 4 / 8, 0.75 - 0.15 * (lane % 4), 0.95 - 0.08 * (lane % 4))
    return Color.from_rgb(255 * red, 255 * green, 255 * blue)


LANE_COLOURS = tuple(colour(lane) for lane in range(LANES))


# -- output ------------------------------------------------------------------------------------------------------------


def write(document: dict[str, Any]) -> None:
    """One JSON document."""
    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
