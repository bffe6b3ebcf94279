"""From the registers of whole warps to matrices and back, by the layouts of `warptile.isa.fragments`.

Registers are an array of shape (registers, lanes), the lanes of whole warps one after the other; matrices are a stack
of shape (warps, rows, columns) with one raw element of 32 or 64 bits in each place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from warptile.emulator.assembler import Destination, Source
from warptile.emulator.lanes import WARP, Active, Array
from warptile.isa.fragments import FragmentLayout, scatter_index


def read_registers(sources: Sequence[Source], active: Active, dtype: Any) -> Array:
    """Registers of the active lanes, which are whole warps: shape (registers, lanes)."""
    found = np.empty((len(sources), active.count), dtype=dtype)
    for register, source in enumerate(sources):
        found[register] = source(active)
    return found


def write_registers(targets: Sequence[Destination], active: Active, registers: Array) -> None:
    """Give the active lanes what `read_registers` would read."""
    for target, values in zip(targets, registers, strict=True):
        target(active, values)


@njit(cache=True)
def _gather_words(registers: Any, places: Any, matrices: Any) -> None:
    """Every register to the place of its element; ``places`` are those of (lane, register), in this order."""
    for warp in range(len(matrices)):
        position = 0
        for lane in range(WARP):
            for register in range(len(registers)):
                matrices[warp, places[position]] = registers[register, warp * WARP + lane]
                position += 1


@njit(cache=True)
def _gather_parts(registers: Any, places: Any, bits: int, signed: bool, matrices: Any) -> None:
    """Every element of 32-bit registers to its place; ``places`` are those of (lane, register, element)."""
    mask = np.uint32((1 << bits) - 1)
    sign = np.uint32(1 << (bits - 1)) if signed else np.uint32(0)
    for warp in range(len(matrices)):
        position = 0
        for lane in range(WARP):
            for register in range(len(registers)):
                word = registers[register, warp * WARP + lane]
                for _ in range(32 // bits):
                    part = word & mask
                    matrices[warp, places[position]] = (part ^ sign) - sign
                    word >>= np.uint32(bits)
                    position += 1


@njit(cache=True)
def _scatter_words(matrices: Any, places: Any, registers: Any) -> None:
    """`_gather_words` the other way round."""
    for warp in range(len(matrices)):
        position = 0
        for lane in range(WARP):
            for register in range(len(registers)):
                registers[register, warp * WARP + lane] = matrices[warp, places[position]]
                position += 1


@njit(cache=True)
def _scatter_parts(matrices: Any, places: Any, bits: int, registers: Any) -> None:
    """`_gather_parts` the other way round, of unsigned elements."""
    for warp in range(len(matrices)):
        position = 0
        for lane in range(WARP):
            for register in range(len(registers)):
                word = np.uint32(0)
                for element in range(32 // bits):
                    word |= matrices[warp, places[position]] << np.uint32(element * bits)
                    position += 1
                registers[register, warp * WARP + lane] = word


class FragmentCodec:
    """Reads and writes one operand of an instruction.

    Attributes:
        layout: where the elements lie.
        registers: how many a lane has.
        word: the unsigned NumPy type of one.
    """

    def __init__(self, layout: FragmentLayout, *, signed: bool = False) -> None:
        self.layout = layout
        self.registers = layout.registers
        self.word = np.dtype(f"u{layout.register_bits // 8}")
        self._signed = signed
        self._places = scatter_index(layout)

    def matrices(self, registers: Array) -> Array:
        """Elements as numbers of the size of a register: raw bits, or their value if they are signed integers."""
        layout = self.layout
        found = np.empty((registers.shape[1] // WARP, layout.rows * layout.columns), dtype=self.word)
        if layout.elements == 1:
            _gather_words(registers, self._places, found)
        else:
            _gather_parts(registers, self._places, layout.element_bits, self._signed, found)
        return found.reshape(-1, layout.rows, layout.columns)

    def registers_of(self, matrices: Array) -> Array:
        """Raw elements, one in each word, to registers; copies get what their originals hold."""
        layout = self.layout
        flat = np.ascontiguousarray(matrices, self.word).reshape(len(matrices), -1)
        found = np.empty((self.registers, len(flat) * WARP), dtype=self.word)
        if layout.elements == 1:
            _scatter_words(flat, self._places, found)
        else:
            _scatter_parts(flat, self._places, layout.element_bits, found)
        return found
