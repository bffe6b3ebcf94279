"""``mma`` and ``mma.sp``: warp-wide multiplication of registers, as `warptile.isa.mma` and `.sparse` describe it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np

from warptile.emulator.arithmetic.fragment_data import read_registers, write_registers
from warptile.emulator.arithmetic.warp_products import Arithmetic, Operands
from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.checks.f16_overflow import overflow_check
from warptile.emulator.lanes import WARP, Active, Array
from warptile.errors import EmulationError
from warptile.isa import catalogue, mma, mma_sp
from warptile.isa.machine_code import ARCHITECTURES, table
from warptile.isa.mma import MmaShape
from warptile.isa.mma_sp import SparseShape
from warptile.isa.numerics import has_quad_pairs
from warptile.ptx.instruction import Immediate, Instruction

_LAYOUTS = ("row", "col")


@builder("mma")
def build_mma(instruction: Instruction, assembler: Assembler) -> Operation:
    """`mma.sync`, `mma.sp.sync` and `mma.sp::ordered_metadata.sync`."""
    modifiers = Modifiers(instruction)
    variant = modifiers.take(*mma_sp.VARIANTS)
    modifiers.need("sync")
    modifiers.need("aligned")
    operation = modifiers.take("xor", "and")
    if operation is not None:
        modifiers.need("popc")
    layouts = (modifiers.need(*_LAYOUTS), modifiers.need(*_LAYOUTS))
    name = modifiers.need(*(mma_sp.NAMES if variant else mma.NAMES))
    kind = next((m for m in modifiers.rest if m.startswith("kind::")), None)
    if kind is not None:
        raise unknown(instruction, f"how sm_120 adds .{kind} is not known to the emulator")
    saturate = modifiers.flag("satfinite")
    rounding = modifiers.take(*mma.ROUNDINGS)
    if len(modifiers.rest) != 4:
        raise unknown(instruction, "needs the types of D, A, B and C")
    result, left, right, addend = modifiers.rest[0], modifiers.rest[1], modifiers.rest[2], modifiers.rest[3]
    shape = mma_sp.find(name, left, right, result=result) if variant else mma.find(name, left, right)
    if shape is None or (result, addend) not in shape.accumulators:
        raise unknown(instruction, f"{name} does not multiply .{left} by .{right} to .{result} with .{addend} added")
    _check(instruction, assembler, shape, layouts, operation, rounding, variant, saturate=saturate)
    capability = assembler.machine.arch_capability
    quads = isinstance(shape, MmaShape) and shape.matrices > 1 and not has_quad_pairs(capability)
    arithmetic = Arithmetic(
        left, right, addend, result, capability,
        operation=operation, saturate=saturate, rounding=rounding or "rn", quads=quads,
    )  # fmt: skip
    if len(instruction.operands) != (6 if variant else 4):
        raise unknown(instruction, f"takes D, A, B, C{', metadata and a selector' if variant else ''}")
    stored = _stored(instruction, assembler, shape) if isinstance(shape, SparseShape) else None
    operands, native = _operands(arithmetic, name, layouts, isinstance(shape, SparseShape))
    return multiplication(instruction, assembler, operands, native=native, flops=shape.flops, stored=stored)


@cache
def _operands(arithmetic: Arithmetic, name: str, layouts: tuple[str, str], sparse: bool) -> tuple[Operands, int]:
    """The fragments of an instruction that is known, and how many tensor-core instructions it becomes."""
    left, right, addend, result = arithmetic.left, arithmetic.right, arithmetic.addend, arithmetic.result
    types = (result, left, right, addend)
    matrices = (("a", left), ("b", right), ("c", addend), ("c", result))
    shape = mma_sp.find(name, left, right, result=result) if sparse else mma.find(name, left, right)
    assert shape is not None
    if isinstance(shape, SparseShape):
        operands = Operands(arithmetic, *(shape.fragment(matrix, element) for matrix, element in matrices))
        return operands, _native_count(shape.opcode(types), arithmetic.capability)
    fragments = (shape.fragment(matrix, element, layouts) for matrix, element in matrices)
    operands = Operands(arithmetic, *fragments, matrices=shape.matrices)
    opcode = shape.opcode(types, layouts=layouts, operation=arithmetic.operation or "")
    return operands, _native_count(opcode, arithmetic.capability)


def _native_count(opcode: str, capability: int) -> int:
    """Tensor-core instructions that one of these becomes, on the newest architecture of the table that is no newer."""
    name = next(each.name for each in catalogue.multiplications() if each.opcode == opcode)
    arch = [a for a in ARCHITECTURES if int(a[3:].rstrip("a")) <= max(capability, 75)][-1]
    return sum(table().of(arch, name).tensor.values())


def _check(
    instruction: Instruction,
    assembler: Assembler,
    shape: MmaShape | SparseShape,
    layouts: tuple[str, str],
    operation: str | None,
    rounding: str | None,
    variant: str | None,
    *,
    saturate: bool,
) -> None:
    """Raise UnknownInstruction for what this shape, or this architecture, does not take."""
    capability = assembler.machine.arch_capability
    legal = shape.layouts if isinstance(shape, MmaShape) else (mma.ROW_COLUMN,)
    known = dict(shape.operations) if isinstance(shape, MmaShape) else {}
    roundings = shape.roundings if isinstance(shape, MmaShape) else ()
    what = f"{shape.name}.{shape.types[0]}"
    if layouts not in legal:
        raise unknown(instruction, f"{what} needs .{'.'.join(legal[0])}")
    if saturate and not shape.saturates:
        raise unknown(instruction, ".satfinite is for integers")
    if rounding is not None and rounding not in roundings:
        raise unknown(instruction, f".{rounding} is for f64")
    if (operation is None) == bool(known) or (operation is not None and operation not in known):
        raise unknown(instruction, f"{what} takes the bit operations {', '.join(known) or 'none'}")
    if isinstance(shape, SparseShape) and variant not in shape.variants:
        raise unknown(instruction, f"{what} is spelled mma.{shape.variants[0]}")
    needed = max(shape.capability, known.get(operation or "", 0))
    if capability < needed:
        raise unknown(instruction, f"{what} needs sm_{needed}, this machine is sm_{capability}")


def multiplication(
    instruction: Instruction,
    assembler: Assembler,
    operands: Operands,
    *,
    native: int,
    flops: int,
    stored: Callable[[Active], Array] | None = None,
) -> Operation:
    """A warp-wide instruction whose first operands are the fragments D, A, B and C.

    Args:
        instruction: the instruction.
        assembler: its assembler.
        operands: what the fragments are and what is computed of them.
        native: tensor instructions that the machine executes for it.
        flops: of one warp.
        stored: of a sparse A, reads which of its columns are stored.
    """
    out, *inputs = instruction.operands[:4]
    codecs = [operands.a, operands.b, operands.c]
    for operand, codec in zip((*inputs, out), (*codecs, operands.d), strict=True):
        given = len(getattr(operand, "elements", (operand,)))
        if given != codec.registers:
            raise unknown(instruction, f"takes {codec.registers} registers where {given} are given")
    sources = [assembler.sources(operand, codec.word) for operand, codec in zip(inputs, codecs, strict=True)]
    targets = assembler.destinations(out, operands.d.word)
    check = overflow_check(instruction, assembler.machine, operands.d.layout, operands.types)
    count = assembler.machine.count
    product = operands.undefined if assembler.moves_undefined_bits else operands.product

    def run(active: Active) -> None:
        a, b, c = (read_registers(each, active, codec.word) for each, codec in zip(sources, codecs, strict=True))
        chosen = None if stored is None else stored(active)
        look = None if check is None else partial(check, active)
        write_registers(targets, active, product(a, b, c, chosen, look))
        warps = active.count // WARP
        count.add(instruction, "tensor_instructions", native * warps)
        count.add(instruction, "tensor_flops", flops * warps)

    return Operation(run, collective="warp")


def _stored(instruction: Instruction, assembler: Assembler, shape: SparseShape) -> Callable[[Active], Array]:
    """Reads the metadata: which columns of A are stored."""
    metadata, selector = instruction.operands[4:]
    if not isinstance(selector, Immediate) or int(selector.value) not in range(shape.selectors):
        raise unknown(instruction, f"the sparsity selector is a constant below {shape.selectors}")
    number = int(selector.value)
    read = assembler.source(metadata, np.uint32)
    machine = assembler.machine

    def stored(active: Active) -> Array:
        words = np.broadcast_to(read(active), active.count).reshape(-1, WARP)
        columns = mma_sp.stored_columns(shape, words, number)
        if int(columns.min()) < 0:
            warp, row, element = (int(i) for i in np.argwhere(columns < 0)[0])
            nibble = element // (shape.group // 2)
            lane, shift = shape.metadata_place(row, nibble, number)
            thread = machine.memory.thread(active.lanes[warp * WARP + lane])
            held = int(words[warp, lane]) >> shift & 15
            raise EmulationError(
                f"{instruction.text}: {thread} gives {held:#x} as metadata of row "
                f"{row}, columns {nibble * shape.group} to {(nibble + 1) * shape.group - 1}; legal are "
                f"{', '.join(f'{legal:#x}' for legal in shape.positions)}",
                kernel=machine.kernel,
                location=instruction.location,
            )
        return columns

    return stored
