"""``wmma.load``, ``wmma.store`` and ``wmma.mma``, all shapes and types, as `warptile.isa.wmma` describes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.arithmetic.warp_products import Arithmetic, Operands
from warptile.emulator.builders import Assembler, Modifiers, Operation, Source, builder, unknown
from warptile.emulator.lanes import WARP, Active, Array
from warptile.emulator.ops.load_store import address_source, count_access
from warptile.emulator.ops.mma import multiplication
from warptile.errors import DivergentCollective, MisalignedAccess
from warptile.isa import wmma
from warptile.isa.fragment_access import Request
from warptile.isa.wmma import ELEMENT_BITS, WmmaShape
from warptile.ptx.instruction import Instruction

_SHAPE_NAMES = tuple(sorted({shape.name for shape in wmma.SHAPES}))
_SPACES = {"global": "global", "shared": "shared", "shared::cta": "shared"}
_ROUNDINGS = ("rn", "rz", "rm", "rp")

Fragments = NDArray[Any]
"""Registers of whole warps: shape (warps, 32, registers), unsigned of the register's width."""


@builder("wmma")
def build_wmma(instruction: Instruction, assembler: Assembler) -> Operation:
    """Any ``wmma`` instruction: what it does is its first modifier."""
    modifiers = Modifiers(instruction)
    action = modifiers.need("load", "store", "mma")
    if action == "mma":
        return _build_mma(instruction, modifiers, assembler)
    matrix = modifiers.need("a", "b", "c") if action == "load" else modifiers.need("d")
    _take_sync(modifiers)
    layout = modifiers.need("row", "col")
    shape_name = modifiers.need(*_SHAPE_NAMES)
    space = _SPACES.get(modifiers.take(*_SPACES) or "", "generic")
    element = modifiers.last()
    modifiers.done()
    shape = wmma.find(shape_name, element) if matrix in "ab" else wmma.find_accumulator(shape_name, element)
    if shape is None:
        raise unknown(instruction, f"{shape_name} has no {matrix.upper()} of type .{element}")
    _check_architecture(instruction, assembler, shape)
    if matrix in "ab" and layout not in {pair["ab".index(matrix)] for pair in shape.layouts}:
        raise unknown(instruction, f"{shape_name}.{element} has no .{layout} {matrix.upper()}")
    transfer = _Transfer(instruction, assembler, shape, "c" if matrix == "d" else matrix, element, layout, space)
    return Operation(transfer.load if action == "load" else transfer.store, collective="warp")


def _take_sync(modifiers: Modifiers) -> None:
    modifiers.need("sync")
    modifiers.need("aligned")


def _check_architecture(instruction: Instruction, assembler: Assembler, shape: WmmaShape) -> None:
    capability = assembler.machine.arch_capability
    if capability < shape.capability:
        raise unknown(
            instruction,
            f".{shape.name} with .{shape.type} needs sm_{shape.capability}, this machine is sm_{capability}",
        )


class _Transfer:
    """One wmma.load or wmma.store, ready to run."""

    def __init__(
        self,
        instruction: Instruction,
        assembler: Assembler,
        shape: WmmaShape,
        matrix: Any,
        element: str,
        layout: str,
        space: str,
    ) -> None:
        self.instruction = instruction
        self.assembler = assembler
        self.machine = assembler.machine
        capability = assembler.machine.arch_capability
        self.fragment = shape.fragment(matrix, element, capability)
        self.element_bits = ELEMENT_BITS[element]
        self.requests = wmma.access(shape, matrix, element, layout, shared=space == "shared", capability=capability)
        self.loads = "load" in instruction.modifiers
        operands = instruction.operands
        place, registers = (operands[1], operands[0]) if self.loads else (operands[0], operands[1])
        self.word = np.dtype(f"u{self.fragment.register_bits // 8}")
        self.address, self.space = address_source(assembler, place, space)
        extent = shape.extent(matrix)
        self.stride: Source = (
            assembler.source(operands[2], np.uint32)
            if len(operands) > 2
            else lambda active: np.array([extent[1] if layout == "row" else extent[0]], dtype=np.uint32)
        )
        if self.loads:
            self.targets = assembler.destinations(registers, self.word)
            count = len(self.targets)
        else:
            self.values = assembler.sources(registers, self.word)
            count = len(self.values)
        if count != self.fragment.registers:
            raise unknown(instruction, f"takes {self.fragment.registers} registers, not {count}")
        self.alignment = wmma.alignment_bytes(self.fragment)

    def load(self, active: Active) -> None:
        """Memory to registers."""
        words = np.empty((active.count // WARP, WARP, self.fragment.registers), dtype=self.word)
        as_bytes = words.view(np.uint8).reshape(*words.shape, self.word.itemsize)
        for request, lanes, addresses in self._accesses(active):
            size = request.bytes_per_lane
            raw = self.machine.memory.load(self.instruction, lanes, self.space, addresses, size)
            count_access(self.assembler, self.instruction, lanes, self.space, addresses, size, write=False)
            held = np.ascontiguousarray(raw).view(np.uint8).reshape(len(words), request.lanes, size)
            if request.kind == "ldmatrix":
                rows = held.reshape(len(words), len(request.registers), 8, 16)
                if request.transposed:
                    rows = _transpose(rows)
                lanes_first = rows.reshape(len(words), len(request.registers), WARP, 4).swapaxes(1, 2)
                as_bytes[:, :, list(request.registers)] = lanes_first
            elif request.transposed:
                as_bytes[:, :, request.registers[0]] = _transpose(held.reshape(len(words), 8, 16)).reshape(held.shape)
            elif size < self.word.itemsize:
                as_bytes[:, :, request.registers[0], request.byte : request.byte + size] = held
            else:
                parts = held.reshape(len(words), WARP, len(request.registers), self.word.itemsize)
                as_bytes[:, :, list(request.registers)] = parts
        for register, target in enumerate(self.targets):
            target(active, words[:, :, self.fragment.original(register)].ravel())

    def store(self, active: Active) -> None:
        """Registers to memory."""
        words = _stack(self.values, active)
        as_bytes = words.view(np.uint8).reshape(*words.shape, self.word.itemsize)
        for request, lanes, addresses in self._accesses(active):
            size = request.bytes_per_lane
            held = as_bytes[:, :, list(request.registers)].reshape(len(words), WARP, -1)
            if request.transposed:
                held = _transpose(held.reshape(len(words), 8, 16)).reshape(held.shape)
            word = np.dtype(np.complex128 if size == 16 else f"u{size}")
            values = np.ascontiguousarray(held).view(word).ravel()
            self.machine.memory.store(self.instruction, lanes, self.space, addresses, values, size)
            count_access(self.assembler, self.instruction, lanes, self.space, addresses, size, write=True)

    def _accesses(self, active: Active) -> list[tuple[Request, Active, Array]]:
        """Each request with the lanes that address it and their addresses."""
        base = self._uniform(active, self.address(active), "address").astype(np.int64)
        stride = self._uniform(active, self.stride(active), "stride").astype(np.int64)
        self._check_alignment(active, base, stride)
        found = []
        for request in self.requests:
            lanes = active
            if request.lanes < WARP:
                lanes = active.where(np.arange(active.count) % WARP < request.lanes)
            slow, fast = np.array(request.slow, dtype=np.int64), np.array(request.fast, dtype=np.int64)
            elements = stride[:, None] * slow + fast
            found.append((request, lanes, (base[:, None] + (elements * self.element_bits >> 3)).ravel()))
        return found

    def _uniform(self, active: Active, values: Array, what: str) -> Array:
        """The one value of each warp."""
        rows = np.broadcast_to(values, active.count).reshape(-1, WARP)
        first = rows[:, 0]
        differs = rows != first[:, None]
        if differs.any():
            thread = self.machine.memory.thread(active.lanes[np.argmax(differs)])
            raise DivergentCollective(
                f"{self.instruction.text}: all lanes of a warp must give the same {what}; {thread} gives "
                f"{int(rows.ravel()[np.argmax(differs)]):#x}, the first lane of its warp another",
                kernel=self.machine.kernel,
                location=self.instruction.location,
            )
        return first

    def _check_alignment(self, active: Active, base: Array, stride: Array) -> None:
        step = stride * self.element_bits
        for values, scale, what in ((base, 1, "address"), (step, 8, "leading dimension")):
            wrong = values % (self.alignment * scale) != 0
            if wrong.any():
                value = int(values[np.argmax(wrong)])
                given = f"{value:#x}" if scale == 1 else f"{int(stride[np.argmax(wrong)])} elements"
                raise MisalignedAccess(
                    f"{self.instruction.text}: the {what} {given} is not a multiple of {self.alignment} bytes, "
                    "as every row of a fragment must be",
                    kernel=self.machine.kernel,
                    location=self.instruction.location,
                )


def _transpose(rows: Array) -> Array:
    """Matrices of 8 rows of 16 bytes, as 8x8 of 16-bit elements, transposed."""
    halves = np.ascontiguousarray(rows).view(np.uint16)
    return np.ascontiguousarray(halves.swapaxes(-1, -2)).view(np.uint8)


def _stack(sources: list[Source], active: Active) -> Fragments:
    """Registers of whole warps as (warps, 32, registers)."""
    columns = [np.broadcast_to(source(active), active.count) for source in sources]
    return np.stack(columns, axis=-1).reshape(-1, WARP, len(columns))


# -- wmma.mma ----------------------------------------------------------------------------------------------------


def _build_mma(instruction: Instruction, modifiers: Modifiers, assembler: Assembler) -> Operation:
    operation = modifiers.take("xor", "and")
    if operation is not None:
        modifiers.need("popc")
    _take_sync(modifiers)
    layouts = (modifiers.need("row", "col"), modifiers.need("row", "col"))
    shape_name = modifiers.need(*_SHAPE_NAMES)
    saturate = modifiers.flag("satfinite")
    rounding = modifiers.take(*_ROUNDINGS)
    types = modifiers.rest[:]
    modifiers.rest.clear()
    if len(types) == 2:  # f16 operands are not named
        types = [types[0], "f16", "f16", types[1]]
    if len(types) != 4 or types[1] != types[2]:
        raise unknown(instruction, "needs the types of D, A, B and C, A and B being alike")
    result, element, _, addend = types
    shape = wmma.find(shape_name, element)
    if shape is None or result not in shape.accumulators or addend not in shape.accumulators:
        raise unknown(instruction, f"{shape_name} does not multiply .{element} to .{result} with .{addend} added")
    if layouts not in shape.layouts:
        raise unknown(instruction, f"{shape_name}.{element} needs .{'.'.join(shape.layouts[0])}")
    if saturate and element not in ("s8", "u8", "s4", "u4"):
        raise unknown(instruction, ".satfinite is for integers (of floating point, PTX ISA before 6.5)")
    if rounding is not None and element != "f64":
        raise unknown(instruction, f".{rounding} is for f64")
    _check_architecture(instruction, assembler, shape)
    _check_operation(instruction, assembler, shape, operation)
    capability = assembler.machine.arch_capability
    arithmetic = Arithmetic(
        element, element, addend, result, capability, shape.on(capability).k, operation, saturate, rounding or "rn"
    )
    matrices = (("a", element), ("b", element), ("c", addend), ("c", result))
    operands = Operands(arithmetic, *(shape.fragment(matrix, of, capability) for matrix, of in matrices))
    native = wmma.native_count(shape, capability, operation)
    return multiplication(instruction, assembler, operands, native=native, flops=shape.flops)


def _check_operation(instruction: Instruction, assembler: Assembler, shape: WmmaShape, operation: str | None) -> None:
    known = dict(shape.operations)
    if operation is None and not known:
        return
    capability = assembler.machine.arch_capability
    if operation is None or operation not in known:
        raise unknown(instruction, f"{shape.name}.{shape.type} takes the bit operations {', '.join(known) or 'none'}")
    if capability < known[operation]:
        raise unknown(instruction, f".{operation} needs sm_{known[operation]}, this machine is sm_{capability}")
