"""``wmma.load``, ``wmma.store`` and ``wmma.mma``, all shapes and types, as `warptile.isa.wmma` describes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator import accumulate
from warptile.emulator.assembler import Assembler, Modifiers, Operation, Source, builder, unknown
from warptile.emulator.lanes import WARP, Active, Array
from warptile.emulator.ops.memory import address_source, count_access
from warptile.emulator.overflow import overflow_check
from warptile.errors import DivergentCollective, MisalignedAccess
from warptile.isa import wmma
from warptile.isa.access import Request
from warptile.isa.fragments import FragmentLayout, gather_index, scatter_index
from warptile.isa.numerics import accumulation
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
            lane = int(active.lanes[int(np.argmax(differs))])
            raise DivergentCollective(
                f"{self.instruction.text}: all lanes of a warp must give the same {what}; lane {lane} gives "
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

Multiply = Callable[[Array, Array, Array], Array]
"""(n, M, K) and (n, N, K) matrices with C to D, all of the fragments' own element types."""


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
    multiply = _multiplier(shape, result, addend, operation, capability, saturate=saturate, rounding=rounding or "rn")
    return Operation(_mma(instruction, assembler, shape, result, addend, operation, multiply), collective="warp")


def _check_operation(instruction: Instruction, assembler: Assembler, shape: WmmaShape, operation: str | None) -> None:
    known = dict(shape.operations)
    if operation is None and not known:
        return
    capability = assembler.machine.arch_capability
    if operation is None or operation not in known:
        raise unknown(instruction, f"{shape.name}.{shape.type} takes the bit operations {', '.join(known) or 'none'}")
    if capability < known[operation]:
        raise unknown(instruction, f".{operation} needs sm_{known[operation]}, this machine is sm_{capability}")


def _mma(
    instruction: Instruction,
    assembler: Assembler,
    shape: WmmaShape,
    result: str,
    addend: str,
    operation: str | None,
    multiply: Multiply,
) -> Callable[[Active], None]:
    machine = assembler.machine
    capability = machine.arch_capability
    fragments = [
        shape.fragment("a", shape.type, capability), shape.fragment("b", shape.type, capability),
        shape.fragment("c", addend, capability), shape.fragment("c", result, capability),
    ]  # fmt: skip
    out, *inputs = instruction.operands
    for operand, fragment in zip((*inputs, out), fragments, strict=True):
        given = len(getattr(operand, "elements", (operand,)))
        if given != fragment.registers:
            raise unknown(instruction, f"takes {fragment.registers} registers where {given} are given")
    words = [np.dtype(f"u{fragment.register_bits // 8}") for fragment in fragments]
    sources = [assembler.sources(operand, word) for operand, word in zip(inputs, words, strict=False)]
    targets = assembler.destinations(out, words[3])
    matrices = [
        _reader(fragments[0], shape.type, rows_first=True), _reader(fragments[1], shape.type, rows_first=False),
        _reader(fragments[2], addend, rows_first=True),
    ]  # fmt: skip
    count = wmma.native_count(shape, capability, operation)
    scatter = scatter_index(fragments[3])
    check = overflow_check(instruction, machine, fragments[3], shape.type, addend, result)

    def run(active: Active) -> None:
        warps = active.count // WARP
        a, b, c = (read(_stack(registers, active)) for read, registers in zip(matrices, sources, strict=True))
        product = multiply(a, b, c).reshape(warps, -1)
        if check is not None:
            check(active, a, b, c, product)
        held = np.ascontiguousarray(product.take(scatter, axis=1)).view(words[3]).reshape(active.count, -1)
        for register, target in enumerate(targets):
            target(active, held[:, register])
        machine.count.add(instruction, "tensor_instructions", count * warps)
        machine.count.add(instruction, "tensor_flops", shape.flops * warps)

    return run


_STORAGE = {
    "f16": np.uint16, "bf16": np.uint16, "tf32": np.uint32, "f32": np.uint32, "f64": np.float64, "s8": np.int8,
    "u8": np.uint8, "s32": np.int32,
}  # fmt: skip
"""How the matrices of `accumulate` hold an element: raw bits for floating-point types that NumPy lacks."""


def _reader(fragment: FragmentLayout, element: str, *, rows_first: bool) -> Callable[[Fragments], Array]:
    """Registers to matrices (n, rows, columns), or transposed for B."""
    rows, columns = fragment.rows, fragment.columns
    if element == "b1":
        # Matrices of 32-bit words along k: the word of (row g, k = 32 t) lies in lane 4 g + t.
        return lambda registers: registers.reshape(-1, 8, 4)
    index = gather_index(fragment)
    if element in ("s4", "u4"):
        order = index.reshape(rows, columns) if rows_first else index.reshape(rows, columns).T

        def read_nibbles(registers: Fragments) -> Array:
            packed = registers.view(np.uint8).reshape(len(registers), -1)
            low, high = packed & 15, packed >> 4
            nibbles = np.stack([low, high], axis=-1).reshape(len(registers), -1)
            values = (nibbles ^ 8).astype(np.int8) - np.int8(8) if element == "s4" else nibbles
            return values[:, order]

        return read_nibbles
    storage = np.dtype(_STORAGE[element])
    matrix = index.reshape(rows, columns) if rows_first else index.reshape(rows, columns).T

    def read(registers: Fragments) -> Array:
        elements = registers.reshape(len(registers), -1).view(storage)
        found: Array = elements.take(matrix.ravel(), axis=1)  # unlike elements[:, matrix], contiguous
        return found.reshape(-1, *matrix.shape)

    return read


def _multiplier(
    shape: WmmaShape, result: str, addend: str, operation: str | None, capability: int, *, saturate: bool, rounding: str
) -> Multiply:
    """What multiplies matrices of these types on this architecture."""
    element = shape.type
    if element == "f64":
        return lambda a, b, c: accumulate.multiply_double(a, b, c, rounding)
    if element == "b1":
        return lambda a, b, c: accumulate.multiply_bits(a, b, c, exclusive=operation == "xor")
    if element in ("s8", "u8", "s4", "u4"):
        return lambda a, b, c: accumulate.multiply_integer(a, b, c, saturate=saturate)
    model = accumulation(element, capability)
    model = replace(model, terms=min(model.terms, shape.on(capability).k))
    # With one f16 and one f32 among C and D the machine computes in f32 and converts the other.
    inner = "f16" if result == addend == "f16" else "f32"

    def multiply(a: Array, b: Array, c: Array) -> Array:
        if addend != inner:
            c = c.view(np.float16).astype(np.float32).view(np.uint32)
        d = accumulate.multiply_float(a, b, c, element, inner, model)
        if result != inner:
            with np.errstate(over="ignore"):
                d = d.view(np.float32).astype(np.float16).view(np.uint16)
        return d

    return multiply
