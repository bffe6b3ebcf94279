"""``wgmma``: asynchronous multiplication by warpgroups, as `warptile.isa.wgmma` describes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.arithmetic.wgmma_products import UndefinedWgmma, WgmmaIssue, WgmmaOperation
from warptile.emulator.builders import Assembler, Modifiers, Operation, Source, builder, unknown
from warptile.emulator.checks.wgmma_registers import WgmmaRegisters
from warptile.emulator.counters import LINE_BYTES
from warptile.emulator.lanes import WARP, Active, Array
from warptile.errors import DivergentCollective, EmulationError
from warptile.isa import mma_sp, wgmma
from warptile.isa.wgmma import CAPABILITY, GroupShape
from warptile.ptx.instruction import Immediate, Instruction, Operand, Register, Vector

_KINDS = ("mma_async", "fence", "commit_group", "wait_group")


@builder("wgmma")
def build_wgmma(instruction: Instruction, assembler: Assembler) -> Operation:
    """`wgmma.mma_async`, dense and sparse, `.fence`, `.commit_group` and `.wait_group`."""
    modifiers = Modifiers(instruction)
    kind = modifiers.need(*_KINDS)
    is_sparse = kind == "mma_async" and modifiers.flag("sp")
    modifiers.need("sync")
    modifiers.need("aligned")
    machine = assembler.machine
    if machine.arch_capability != CAPABILITY:
        raise unknown(instruction, f"needs sm_90a, this machine is sm_{machine.arch_capability}")
    products = machine.products
    if kind == "mma_async":
        return _build_product(instruction, assembler, modifiers, is_sparse=is_sparse)
    modifiers.done()
    if kind == "fence":
        return Operation(products.fence, collective="warp")
    if kind == "commit_group":
        return Operation(products.commit, collective="warp")
    keep = _constant(instruction, instruction.operands[0] if instruction.operands else None, range(8))
    return Operation(lambda active: products.wait(active, keep), collective="warp")


def _constant(instruction: Instruction, operand: Operand | None, legal: Sequence[int]) -> int:
    if not isinstance(operand, Immediate) or int(operand.value) not in legal:
        raise unknown(instruction, f"needs a constant, one of {', '.join(map(str, legal))}")
    return int(operand.value)


def _build_product(
    instruction: Instruction, assembler: Assembler, modifiers: Modifiers, *, is_sparse: bool
) -> Operation:
    name = modifiers.need(*sorted({shape for shape, _, _ in wgmma.shapes()}))
    saturates = modifiers.flag("satfinite")
    bits = modifiers.flag("and")
    if bits:
        modifiers.need("popc")
    if len(modifiers.rest) != 3:
        raise unknown(instruction, "needs the types of D, A and B")
    result, left, right = modifiers.rest
    shape = wgmma.find(name, left, right, sparse=is_sparse)
    if shape is None or result not in shape.family.results:
        raise unknown(instruction, f"{name} does not multiply .{left} by .{right} to .{result}")
    if saturates and not shape.family.saturates:
        raise unknown(instruction, ".satfinite is for integers")
    if bits != (left == "b1"):
        raise unknown(instruction, ".and.popc is for .b1, which needs it")
    operands = list(instruction.operands)
    out, a, b = operands[:3]
    in_registers = isinstance(a, Vector)
    transposable = shape.family.transposable * (2 - in_registers)
    taken = 4 + 2 * is_sparse + 2 * shape.family.negatable + transposable
    if len(operands) != taken:
        raise unknown(instruction, f"has {len(operands)} operands where {taken} are needed")
    rest = operands[3 + 2 * is_sparse :]
    adds = assembler.source(rest.pop(0), np.bool_)
    negated, transposed = [False, False], [False, False]
    if shape.family.negatable:
        negated = [_constant(instruction, rest.pop(0), (1, -1)) == -1 for _ in "ab"]
    if shape.family.transposable:
        transposed = [_constant(instruction, operand, (0, 1)) == 1 for operand in rest]
        transposed = [False, *transposed] if in_registers else transposed
    names = [_registers(instruction, out, shape.registers(result), "D")]
    names.append(_registers(instruction, a, 4, "A") if in_registers else [])
    machine = assembler.machine
    held = WgmmaRegisters() if assembler.moves_undefined_bits else machine.products.held(machine.registers)
    addends = assembler.sources(out, np.uint32)
    for each in names[0]:  # whether they are read, scale-d says: `warpgroups` follows them
        assembler.reads.remove(each)
    operation = UndefinedWgmma if assembler.moves_undefined_bits else WgmmaOperation
    product = operation(
        instruction, shape, (result, left, right), machine.memory, held,
        rows=(held.rows(names[0]), held.rows(names[1])),
        targets=assembler.destinations(out, np.uint32),
        addends=addends,
        left=assembler.sources(a, np.uint32) if in_registers else [],
        transposed=(transposed[0], transposed[1]),
        negated=(negated[0], negated[1]) if operation is WgmmaOperation else (False, False),
        saturates=saturates,
        checks_overflow="overflow" in machine.checks,
    )  # fmt: skip
    if isinstance(product, UndefinedWgmma):
        machine.products.follow(product)
        return Operation(lambda active: None)  # whenever a product is computed, so are its undefined bits
    left_words = None if in_registers else _descriptor(instruction, assembler, a, "A")
    right_words = _descriptor(instruction, assembler, b, "B")
    stored = _stored(instruction, assembler, shape, left) if is_sparse else None
    products, count = machine.products, machine.count
    read_bytes = (shape.n * shape.k + (0 if in_registers else wgmma.ROWS * shape.stored)) * shape.family.bits // 8

    def run(active: Active) -> None:
        warps = active.lanes[::WARP] // WARP
        products.issue(
            WgmmaIssue(
                product,
                warps,
                products.committed(warps),
                None if left_words is None else left_words(active),
                right_words(active),
                _uniform(instruction, assembler, active, adds, "scale-d"),
                None if stored is None else stored(active),
            )
        )
        count.add(instruction, "tensor_instructions", len(warps))
        count.add(instruction, "tensor_flops", shape.flops * len(warps))
        warpgroups = int(np.count_nonzero(warps % wgmma.WARPS == 0))
        count.add(instruction, "tensor_operand_wavefronts", read_bytes // LINE_BYTES * warpgroups)

    return Operation(run, collective="warp")


def _registers(instruction: Instruction, operand: Operand, count: int, matrix: str) -> list[str]:
    given = operand.elements if isinstance(operand, Vector) else (operand,)
    names = [each.name for each in given if isinstance(each, Register)]
    if len(names) != count or len(given) != count:
        raise unknown(instruction, f"{matrix} takes {count} registers where {len(given)} operands are given")
    return names


def _uniform(instruction: Instruction, assembler: Assembler, active: Active, source: Source, what: str) -> Array:
    """An operand that all lanes of a warp must agree on: one value for each warp."""
    values = np.broadcast_to(source(active), active.count).reshape(-1, WARP)
    differs = (values != values[:, :1]).any(axis=1)
    if differs.any():
        machine = assembler.machine
        thread = machine.memory.thread(active.lanes[WARP * int(np.argmax(differs))])
        raise DivergentCollective(
            f"{instruction.text}: the lanes of the warp of {thread} differ in {what}",
            kernel=machine.kernel,
            location=instruction.location,
        )
    return values[:, 0].copy()


def _descriptor(
    instruction: Instruction, assembler: Assembler, operand: Operand, matrix: str
) -> Callable[[Active], NDArray[np.uint64]]:
    source = assembler.source(operand, np.uint64)
    return lambda active: _uniform(instruction, assembler, active, source, f"the descriptor of {matrix}")


def _stored(
    instruction: Instruction, assembler: Assembler, shape: GroupShape, left: str
) -> Callable[[Active], NDArray[np.int64]]:
    """Reads the metadata, whose placement in each warp is that of mma.sp: which columns of A are stored."""
    warp_shape = mma_sp.find(f"m16n8k{shape.k}", left)
    assert warp_shape is not None
    metadata, selector = instruction.operands[3:5]
    number = _constant(instruction, selector, range(warp_shape.selectors))
    read = assembler.source(metadata, np.uint32)
    machine = assembler.machine

    def stored(active: Active) -> NDArray[np.int64]:
        words = np.broadcast_to(read(active), active.count).reshape(-1, WARP)
        columns = mma_sp.stored_columns(warp_shape, words, number)
        if int(columns.min()) < 0:
            warp, row, element = (int(i) for i in np.argwhere(columns < 0)[0])
            nibble = element // (warp_shape.group // 2)
            lane, shift = warp_shape.metadata_place(row, nibble, number)
            raise EmulationError(
                f"{instruction.text}: {machine.memory.thread(active.lanes[warp * WARP + lane])} gives "
                f"{int(words[warp, lane]) >> shift & 15:#x} as metadata of row {row} of its warp, columns "
                f"{nibble * warp_shape.group} to {(nibble + 1) * warp_shape.group - 1}; legal are "
                f"{', '.join(f'{legal:#x}' for legal in warp_shape.positions)}",
                kernel=machine.kernel,
                location=instruction.location,
            )
        return columns

    return stored
