"""``ldmatrix``, ``stmatrix`` and ``movmatrix``: small matrices between shared memory and fragments.

A matrix in memory is eight (or sixteen) rows of 16 bytes, each with an address of its own: lane 8 i + j gives that of
row j of matrix i. In registers, matrix i is register i of every lane. PTX ISA, "Warp-level matrix load instruction:
ldmatrix" and the sections after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from warptile.isa.fragments import FragmentLayout, Step

ROW_BYTES = 16
"""Bytes at each address."""


@dataclass(frozen=True)
class MatrixMove:
    """One form of one instruction.

    Attributes:
        instruction: ``ldmatrix``, ``stmatrix`` or ``movmatrix``.
        shape: of one matrix, as PTX spells it.
        type: the element type, with the formats that it is unpacked from.
        counts: matrices that one instruction moves, spelled ``.x1``, ``.x2``, ``.x4``; movmatrix does not say it.
        transposed: whether ``.trans`` may be absent (False), present (True), or both.
        capability: the first compute capability (times ten) whose assembler takes it.
    """

    instruction: str
    shape: str
    type: str
    counts: tuple[int, ...]
    transposed: tuple[bool, ...]
    capability: int

    @property
    def registers_per_matrix(self) -> int:
        """32-bit registers of each lane that one matrix takes; for each, eight rows are addressed."""
        rows, columns = map(int, self.shape[1:].split("n"))
        return rows * columns * (16 if self.type == "b16" else 8) // 1024

    def fragment(self, count: int, *, transposed: bool) -> FragmentLayout:
        """Where the 16-bit elements of ``count`` matrices, stacked downwards, lie in registers.

        Raises:
            ValueError: this form does not move so many matrices that way, or its elements are not of 16 bits.
        """
        if self.type != "b16" or count not in self.counts or transposed not in self.transposed:
            raise ValueError(f"{self.opcode(count, transposed=transposed)}: no such fragment of 16-bit elements")
        return _fragment(count, transposed)

    def opcode(self, count: int, *, transposed: bool) -> str:
        """The instruction as PTX spells it, in shared memory."""
        parts = [self.instruction, "sync", "aligned", self.shape]
        moves = self.instruction == "movmatrix"
        parts += [] if moves else [f"x{count}"]
        parts += ["trans"] if transposed else []
        parts += [] if moves else ["shared"]
        return ".".join([*parts, self.type])


@cache
def _fragment(count: int, transposed: bool) -> FragmentLayout:
    """Lane L holds columns 2 (L % 4) and the next of row L / 4 of each matrix; transposed, the same of its columns."""
    lane: tuple[Step, ...] = ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0))
    pair: tuple[Step, ...] = ((0, 1),)
    if transposed:
        lane, pair = tuple((column, row) for row, column in lane), ((1, 0),)
    down: tuple[Step, ...] = ((8, 0), (16, 0))
    return FragmentLayout(8 * count, 8, 16, 32, lane, down[: count.bit_length() - 1], pair)


_UNPACKED = ("b8x16.b6x16_p32", "b8x16.b4x16_p64")
_EITHER, _ALWAYS, _NEVER = (False, True), (True,), (False,)

MOVES: tuple[MatrixMove, ...] = (
    MatrixMove("ldmatrix", "m8n8", "b16", (1, 2, 4), _EITHER, 75),
    MatrixMove("ldmatrix", "m16n16", "b8", (1, 2), _ALWAYS, 100),
    *(MatrixMove("ldmatrix", "m16n16", unpacked, (1, 2), _ALWAYS, 100) for unpacked in _UNPACKED),
    *(MatrixMove("ldmatrix", "m8n16", unpacked, (1, 2, 4), _NEVER, 100) for unpacked in _UNPACKED),
    MatrixMove("stmatrix", "m8n8", "b16", (1, 2, 4), _EITHER, 90),
    MatrixMove("stmatrix", "m16n8", "b8", (1, 2, 4), _ALWAYS, 100),
    MatrixMove("movmatrix", "m8n8", "b16", (1,), _ALWAYS, 75),
)
"""Every form. Those of 8 bits and less are for sm_100a, sm_120a and their families alone."""


def find(instruction: str, shape: str = "m8n8", type: str = "b16") -> MatrixMove | None:
    """The form of ``instruction`` for matrices called ``shape`` of elements of ``type``."""
    return next((m for m in MOVES if (m.instruction, m.shape, m.type) == (instruction, shape, type)), None)


@cache
def moves() -> dict[str, tuple[MatrixMove, int, bool]]:
    """The 16-bit forms by name, such as ``ldmatrix.x4.trans``: the form, how many matrices, transposed."""
    found = {}
    for move in MOVES:
        for count in move.counts if move.type == "b16" else ():
            for transposed in move.transposed:
                spelled = [move.instruction, "" if move.instruction == "movmatrix" else f"x{count}"]
                name = ".".join(part for part in (*spelled, "trans" if transposed else "") if part)
                found[name] = (move, count, transposed)
    return found
