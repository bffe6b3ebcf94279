"""How a fragment gets from memory into registers and back: the requests of a warp, as the compiled code shows them.

A matrix in memory has a slow axis (one leading dimension from row to row of memory) and a fast axis (consecutive
elements). `requests` derives from a fragment's layout what NVIDIA's assembler emits for it; that these are the same
instructions, addresses and registers is tested against disassembled machine code for sm_75, sm_80 and sm_90a.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from warptile.isa.fragments import FragmentLayout

Kind = Literal["ldmatrix", "plain"]
MATRIX_ROWS = 8
MATRIX_ROW_BYTES = 16
WARP = 32
MAX_REQUEST_BYTES = 16


@dataclass(frozen=True)
class Request:
    """One warp-wide memory instruction.

    Attributes:
        kind: ``"ldmatrix"`` (8x8 matrices of 16-bit units from shared memory) or ``"plain"``.
        bytes_per_lane: bytes at each address.
        slow: for each addressing lane, its place along the slow axis, in elements.
        fast: the same along the fast axis.
        registers: for ldmatrix, the register of each matrix; for plain, the registers that the bytes fill in order.
        byte: for a plain request of part of a register, which byte of it.
        transposed: the 8x8 matrices of 16-bit elements are transposed on the way (``ldmatrix.trans``, or ``movmatrix``
            beside a plain request).
    """

    kind: Kind
    bytes_per_lane: int
    slow: tuple[int, ...]
    fast: tuple[int, ...]
    registers: tuple[int, ...]
    byte: int = 0
    transposed: bool = False

    def __post_init__(self) -> None:
        if self.bytes_per_lane not in (1, 2, 4, 8, 16):
            raise ValueError(f"no memory instruction moves {self.bytes_per_lane} bytes a lane")
        lanes = MATRIX_ROWS * len(self.registers) if self.kind == "ldmatrix" else WARP
        if len(self.slow) != lanes or len(self.fast) != lanes:
            raise ValueError(f"{lanes} lanes address this request, not {len(self.slow)}")

    @property
    def lanes(self) -> int:
        """Lanes that give an address: the first so many of the warp."""
        return len(self.slow)


@cache
def requests(
    layout: FragmentLayout, *, row_major: bool, shared: bool, accumulator: bool, matrices: int
) -> tuple[Request, ...]:
    """The requests that load a fragment (storing makes the same ones).

    Args:
        layout: of the fragment.
        row_major: the matrix in memory is row-major: its fast axis runs along columns.
        shared: shared memory named in the instruction; global and generic addresses cannot use ldmatrix.
        accumulator: C or D; these never use ldmatrix.
        matrices: how many matrices one ldmatrix loads at most.
    """
    seen = layout if row_major else layout.transposed()  # rows of `seen` are the slow axis, columns the fast one
    along = _runs_along_fast_axis(seen)
    matrix_operand = not accumulator and layout.element_bits <= 16
    if shared and matrix_operand and (along or layout.element_bits == 16):
        return _ldmatrix(seen, matrices, transposed=not along)
    if along:
        return _words(seen)
    if layout.element_bits == 16:
        return _transposed_words(seen)
    return _elements(seen)


def _runs_along_fast_axis(seen: FragmentLayout) -> bool:
    """Whether the elements of a register, or neighbouring registers of one element, are consecutive in memory."""
    if seen.element:
        return seen.element[0] == (0, 1)
    return bool(seen.register) and seen.register[0] == (0, 1)


def _starts(seen: FragmentLayout, register: int, element: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
    places = [seen.place(lane, register, element) for lane in range(WARP)]
    return tuple(slow for slow, _ in places), tuple(fast for _, fast in places)


def _words(seen: FragmentLayout) -> tuple[Request, ...]:
    """Whole registers, neighbouring ones together as far as they are consecutive in memory and 16 bytes allow."""
    size = seen.register_bits // 8
    together = 1
    for step in seen.register:
        if step != (0, seen.elements * together) or size * together * 2 > MAX_REQUEST_BYTES:
            break
        together *= 2
    return tuple(
        Request("plain", size * together, *_starts(seen, register), tuple(range(register, register + together)))
        for register in seen.distinct
        if register % together == 0
    )


def _elements(seen: FragmentLayout) -> tuple[Request, ...]:
    """One request for each element of each register."""
    size = seen.element_bits // 8
    return tuple(
        Request("plain", size, *_starts(seen, register, element), (register,), byte=element * size)
        for register in seen.distinct
        for element in range(seen.elements)
    )


def _transposed_words(seen: FragmentLayout) -> tuple[Request, ...]:
    """Each 8x8 tile of 16-bit elements is read along the fast axis and transposed in registers."""
    tiles = []
    for register in seen.distinct:
        slow, fast = seen.place(0, register, 0)
        lanes = range(WARP)
        tiles.append(
            Request(
                "plain",
                4,
                tuple(slow + lane // 4 for lane in lanes),
                tuple(fast + 2 * (lane % 4) for lane in lanes),
                (register,),
                transposed=True,
            )
        )
    return tuple(tiles)


def _ldmatrix(seen: FragmentLayout, matrices: int, *, transposed: bool) -> tuple[Request, ...]:
    """Lane 8*i + j addresses row j of matrix i, which goes to the i-th register of the group."""
    distinct = seen.distinct
    groups = []
    for first in range(0, len(distinct), matrices):
        group = distinct[first : first + matrices]
        corners = [seen.place(0, register, 0) for register in group]
        groups.append(
            Request(
                "ldmatrix",
                MATRIX_ROW_BYTES,
                tuple(slow + row for slow, _ in corners for row in range(MATRIX_ROWS)),
                tuple(fast for _, fast in corners for _ in range(MATRIX_ROWS)),
                group,
                transposed=transposed,
            )
        )
    return tuple(groups)
