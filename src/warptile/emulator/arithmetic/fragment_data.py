"""Converts registers of whole warps or warpgroups to matrices and back, with the layouts of `warptile.isa`.

Registers are an array of shape (registers, lanes), the lanes of whole warps one after the other; matrices are a stack
of shape (warps, rows, columns) with one raw element of 32 or 64 bits in each place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from warptile.emulator.builders import Destination, Source
from warptile.emulator.lanes import Active, Array
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
    """Every register to the place of its element."""
    count, lanes, _ = places.shape
    for group in range(len(matrices)):
        for register in range(count):
            for lane in range(lanes):
                matrices[group, places[register, lane, 0]] = registers[register, group * lanes + lane]


@njit(cache=True)
def _gather_parts(registers: Any, places: Any, bits: int, signed: bool, matrices: Any) -> None:
    """Every element of 32-bit registers to its place."""
    count, lanes, elements = places.shape
    mask = np.uint32((1 << bits) - 1)
    sign = np.uint32(1 << (bits - 1)) if signed else np.uint32(0)
    for group in range(len(matrices)):
        for register in range(count):
            for lane in range(lanes):
                word = registers[register, group * lanes + lane]
                for element in range(elements):
                    part = word & mask
                    matrices[group, places[register, lane, element]] = (part ^ sign) - sign
                    word >>= np.uint32(bits)


@njit(cache=True)
def _scatter_words(matrices: Any, places: Any, registers: Any) -> None:
    """`_gather_words` the other way round."""
    count, lanes, _ = places.shape
    for group in range(len(matrices)):
        for register in range(count):
            for lane in range(lanes):
                registers[register, group * lanes + lane] = matrices[group, places[register, lane, 0]]


@njit(cache=True)
def _scatter_parts(matrices: Any, places: Any, bits: int, registers: Any) -> None:
    """`_gather_parts` the other way round, of unsigned elements."""
    count, lanes, elements = places.shape
    for group in range(len(matrices)):
        for register in range(count):
            for lane in range(lanes):
                word = np.uint32(0)
                for element in range(elements):
                    word |= matrices[group, places[register, lane, element]] << np.uint32(element * bits)
                registers[register, group * lanes + lane] = word


def to_matrices(registers: Array, places: Array, size: int, bits: int, *, signed: bool = False) -> Array:
    """Elements of ``bits`` bits in registers to matrices of ``size`` places, one in each word: (groups, size).

    Args:
        registers: (registers, lanes), the lanes of the groups one after the other.
        places: of the elements of one group: (registers, lanes, elements of a register).
        size: elements of a matrix.
        bits: of an element.
        signed: elements of less than a register are signed integers.
    """
    _, lanes, elements = places.shape
    found = np.empty((registers.shape[1] // lanes, size), dtype=registers.dtype)
    if elements == 1:
        _gather_words(registers, places, found)
    else:
        _gather_parts(registers, places, bits, signed, found)
    return found


def to_registers(matrices: Array, places: Array, bits: int) -> Array:
    """The other way round, of raw elements; copies get what their originals hold."""
    count, lanes, elements = places.shape
    found = np.empty((count, len(matrices) * lanes), dtype=matrices.dtype)
    if elements == 1:
        _scatter_words(matrices, places, found)
    else:
        _scatter_parts(matrices, places, bits, found)
    return found


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
        places = scatter_index(layout).reshape(-1, layout.registers, layout.elements)
        self._places = np.ascontiguousarray(places.swapaxes(0, 1))

    def matrices(self, registers: Array) -> Array:
        """Elements as numbers of the size of a register: raw bits, or their value if they are signed integers."""
        layout = self.layout
        words = np.ascontiguousarray(registers, self.word)
        size = layout.rows * layout.columns
        found = to_matrices(words, self._places, size, layout.element_bits, signed=self._signed)
        return found.reshape(-1, layout.rows, layout.columns)

    def registers_of(self, matrices: Array) -> Array:
        """Raw elements, one in each word, to registers; copies get what their originals hold."""
        flat = np.ascontiguousarray(matrices, self.word).reshape(len(matrices), -1)
        return to_registers(flat, self._places, self.layout.element_bits)
