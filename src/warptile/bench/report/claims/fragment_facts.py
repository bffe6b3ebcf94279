"""Claims about fragments: registers, and which lane holds which element."""

from __future__ import annotations

from warptile.bench.report.claims.fact import LAYOUTS, Answer, Fact
from warptile.isa import matrix_move, mma, wgmma, wmma
from warptile.isa.fragments import FragmentLayout, gather_index

_OLDEST, _NEWEST = 75, 120
_GENERATIONS = (75, 80, 90, 100, 120)
"""Compute capabilities (times ten) between which the layout of a WMMA fragment could change."""


def _mma(matrix: str, element: str) -> FragmentLayout:
    shape = mma.find("m16n8k16", "f16")
    assert shape is not None
    return shape.fragment(matrix, element)


def _registers() -> Answer:
    counts = [_mma("a", "f16"), _mma("b", "f16"), _mma("c", "f32"), _mma("c", "f16")]
    a, b, wide, narrow = (each.registers for each in counts)
    found = f"A {a}, B {b}, C and D {wide} in f32 and {narrow} in f16"
    return Answer(found, (a, b, wide, narrow) == (4, 2, 4, 2))


def _wmma_fragments() -> list[tuple[str, list[FragmentLayout]]]:
    """Every WMMA fragment by name, with its layout on each generation that has it."""
    found = []
    for shape in wmma.SHAPES:
        for matrix, element in (("a", shape.type), ("b", shape.type), *(("c", each) for each in shape.accumulators)):
            layouts = [shape.fragment(matrix, element, each) for each in _GENERATIONS if each >= shape.capability]
            found.append((f"{element} {matrix.upper()} of {shape.name}.{shape.type}", layouts))
    return found


def _differing() -> list[str]:
    return [name for name, layouts in _wmma_fragments() if len(set(layouts)) > 1]


def _opaque() -> Answer:
    differing, every = _differing(), _wmma_fragments()
    found = f"{len(differing)} of {len(every)} fragments change between sm_{_OLDEST} and sm_{_NEWEST}: {differing[0]}"
    return Answer(found + (f" and {len(differing) - 1} more" if differing[1:] else ""), bool(differing))


def _same_as_mma() -> Answer:
    shape = wmma.find("m16n16k16", "f16")
    assert shape is not None
    whole = shape.fragment("a", "f16", 90)
    same = gather_index(whole).tolist() == _remapped(whole, _mma("a", "f16"))
    copies = whole.registers - len(whole.distinct)
    rows, columns = (sorted(set(each)) for each in zip(*_held_by(whole, 0), strict=True))
    first = f"lane 0 holds columns {', '.join(map(str, columns))} of rows {' and '.join(map(str, rows))}"
    found = f"A of m16n16k16 is {'' if same else 'not '}A of mma.m16n8k16: {first}; {copies} registers are copies"
    fixed = not any(name.startswith("f16") or ".f16" in name for name in _differing())
    return Answer(found, same and fixed)


def _held_by(layout: FragmentLayout, lane: int) -> list[tuple[int, int]]:
    """The (row, column) of every element that a lane holds."""
    return [
        layout.place(lane, register, element)
        for register in range(layout.registers)
        for element in range(layout.elements)
    ]


def _owner(layout: FragmentLayout, row: int, column: int) -> int:
    """The lane that holds an element."""
    return next(lane for lane in range(32) if (row, column) in _held_by(layout, lane))


def _generations() -> Answer:
    volta, turing = mma.find("m8n8k4", "f16"), mma.find("m16n8k8", "f16")
    assert volta is not None
    assert turing is not None
    layouts = {
        "Volta": volta.fragment("a", "f16"),
        "Turing": turing.fragment("a", "f16"),
        "Ampere": _mma("a", "f16"),
        "Hopper": wgmma.by_name()["wgmma.m64n8k16.f32.f16"][0].fragment(),
    }
    corner = [(row, column) for row in range(8) for column in range(4)]
    owners = {name: tuple(_owner(layout, *place) for place in corner) for name, layout in layouts.items()}
    found = ", ".join(f"{name} lane {owners[name][corner.index((5, 3))]}" for name in layouts)
    return Answer(f"A[5, 3] is in: {found}", len(set(owners.values())) == len(layouts))


def _remapped(wide: FragmentLayout, narrow: FragmentLayout) -> list[int]:
    """Where ``narrow`` has each element, numbered as in ``wide``, which has more registers for a lane."""
    per_lane, given = wide.registers * wide.elements, narrow.registers * narrow.elements
    return [int(place) // given * per_lane + int(place) % given for place in gather_index(narrow)]


def _listing_registers() -> Answer:
    shape = wgmma.by_name()["wgmma.m64n128k16.f32.f16"][0]
    d, a = shape.registers("f32"), shape.fragment().registers
    return Answer(f"D {d}, A {a}", (d, a) == (64, 8))


def _row_addresses() -> Answer:
    move = matrix_move.find("ldmatrix")
    assert move is not None
    lanes = {count: 8 * count * move.registers_per_matrix for count in move.counts}
    b_of_mma = _mma("b", "f16")
    stored = move.fragment(2, transposed=True)  # K x N in shared memory, 16 rows of 8
    same = all(
        b_of_mma.place(lane, register, element) == stored.place(lane, register, element)
        for lane in range(32) for register in range(2) for element in range(2)
    )  # fmt: skip
    found = (
        f"x4 takes {lanes[4]} row addresses, x2 {lanes[2]}; x2.trans of 16 x 8 is {'' if same else 'not '}B of the MMA"
    )
    return Answer(found, lanes[4] == 32 and same)


FACTS = (
    Fact("T1, T4", "a lane holds 4 registers of A, 2 of B and 4 of C or D, or 2 where accumulators are f16",
         "mma.m16n8k16, f16", LAYOUTS, _registers,
         "16 x 16, 16 x 8 and 16 x 8 elements over 32 lanes, two f16 to a register."),
    Fact("T0, T1", "which lane holds which element of a WMMA fragment is up to the implementation", "all fragments",
         LAYOUTS, _opaque,
         "The layouts are read from disassembled loads and stores. Almost all are stable, and still the PTX ISA "
         "promises none: the integer accumulators of one shape moved with Ampere."),
    Fact("T4", "WMMA compiles to `mma.sync`, with one fragment layout for all generations", "f16, from Turing on",
         LAYOUTS, _same_as_mma,
         "The copies are a rest of Volta, where two lanes held each element: the one generation whose layout differs, "
         "and which NVRTC 13 no longer targets."),
    Fact("T4", "the tensor cores of Volta, Turing, Ampere and Hopper have four different layouts", "A, f16", LAYOUTS,
         _generations,
         "Compared over the 8 x 4 corner that all four have (m8n8k4, m16n8k8, m16n8k16, and `wgmma` with A in "
         "registers). Since Turing only the extent grows."),
    Fact("T1", "D takes 64 registers and A takes 8", "the example wgmma.m64n128k16, f16", LAYOUTS,
         _listing_registers,
         "64 x 16 halves over 128 threads are 8 halves for each, two to a register."),
    Fact("T4", "for `ldmatrix.x4` each lane gives an address, and `.trans` makes a column-major B of a row-major tile",
         "f16", LAYOUTS, _row_addresses,
         "Lane 8 i + j addresses row j of matrix i; of narrower forms the addresses of the upper lanes are ignored."),
)  # fmt: skip
