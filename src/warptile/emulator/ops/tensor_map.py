"""``tensormap.replace`` and ``tensormap.cp_fenceproxy``: kernels that modify tensor maps.

PTX ISA, "Data Movement and Conversion Instructions: tensormap.replace" and "Parallel Synchronization and Communication
Instructions: tensormap.cp_fenceproxy". A map is changed through plain accesses; copies look at it through a proxy of
their own, which sees it behind ``fence.proxy.tensormap::generic.acquire`` only.
"""

from __future__ import annotations

import numpy as np

from warptile.emulator.async_ops.tensor_boxes import replaced
from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import WARP, Active, Array
from warptile.emulator.memory.accesses import GLOBAL_BASE, Memory
from warptile.emulator.ops.load_store import address_source
from warptile.errors import DivergentCollective, IllegalInstruction, LayoutError, UnsupportedError
from warptile.isa.swizzle import CHUNK_BYTES
from warptile.launch.tensor_map import TENSOR_MAP_BYTES
from warptile.ptx.instruction import Immediate, Instruction

_WHOLE = ("global_address", "rank", "elemtype", "interleave_layout", "swizzle_mode", "fill_mode")
_OF_A_DIMENSION = ("box_dim", "global_dim", "global_stride", "element_stride")
_WIDE = ("global_address", "global_stride")
_SCOPES = ("cta", "cluster", "gpu", "sys")
_PIECES = range(0, TENSOR_MAP_BYTES, CHUNK_BYTES)


@builder("tensormap")
def build(instruction: Instruction, assembler: Assembler) -> Operation:
    """`tensormap.replace` or `tensormap.cp_fenceproxy`."""
    modifiers = Modifiers(instruction)
    capability = assembler.machine.arch_capability
    if capability < 90:
        raise unknown(instruction, f"tensor maps need sm_90a, this machine is sm_{capability}")
    if modifiers.need("replace", "cp_fenceproxy") == "replace":
        return _build_replace(instruction, assembler, modifiers)
    return _build_copy(instruction, assembler, modifiers)


def _build_replace(instruction: Instruction, assembler: Assembler, modifiers: Modifiers) -> Operation:
    modifiers.need("tile")
    field = modifiers.need(*_WHOLE, *_OF_A_DIMENSION)
    space = modifiers.take("global", "shared::cta")
    modifiers.need("b1024")
    modifiers.need("b64" if field in _WIDE else "b32")
    modifiers.done()
    map_operand, *operands = instruction.operands
    if len(operands) != 1 + (field in _OF_A_DIMENSION):
        raise unknown(instruction, f"{field} takes {'a dimension and ' * (field in _OF_A_DIMENSION)}a value")
    ordinal = 0
    if field in _OF_A_DIMENSION:
        if not isinstance(operands[0], Immediate):
            raise unknown(instruction, "the dimension must be a constant")
        ordinal = int(operands[0].value)
    value = assembler.source(operands[-1], np.uint64 if field in _WIDE else np.uint32)
    name = {"global": "global", "shared::cta": "shared", None: "generic"}[space]
    address, name = address_source(assembler, map_operand, name)
    machine, memory = assembler.machine, assembler.machine.memory

    def run(active: Active) -> None:
        machine.last_effect = machine.steps
        addresses = np.broadcast_to(address(active), active.count)
        values = np.broadcast_to(value(active), active.count)
        for row, lane in enumerate(active.lanes.tolist()):
            one = Active.of(np.array([lane], dtype=np.intp))
            place = addresses[row : row + 1]
            try:
                changed = replaced(_read(memory, instruction, one, name, place), field, ordinal, int(values[row]))
            except LayoutError as error:
                raise _illegal(memory, instruction, lane, str(error)) from error
            except UnsupportedError as error:
                raise UnsupportedError(f"{instruction.text} at {instruction.location}: {error}") from error
            _write(memory, instruction, one, name, place, changed)
            machine.fenced_maps.discard(int(place[0]) - GLOBAL_BASE)

    return Operation(run)


def _build_copy(instruction: Instruction, assembler: Assembler, modifiers: Modifiers) -> Operation:
    """A warp copies a map from shared to global memory together, and releases it to the tensormap proxy."""
    for word in ("global", "shared::cta", "tensormap::generic", "release"):
        modifiers.need(word)
    modifiers.need(*_SCOPES)
    modifiers.need("sync")
    modifiers.need("aligned")
    modifiers.done()
    target, source, size = instruction.operands
    if not isinstance(size, Immediate) or size.value != TENSOR_MAP_BYTES:
        raise unknown(instruction, f"the size must be {TENSOR_MAP_BYTES}")
    write, _ = address_source(assembler, target, "global")
    read, _ = address_source(assembler, source, "shared")
    machine, memory = assembler.machine, assembler.machine.memory

    def run(active: Active) -> None:
        machine.last_effect = machine.steps
        places = [np.broadcast_to(each(active), active.count).reshape(-1, WARP) for each in (write, read)]
        for row, lanes in enumerate(active.lanes.reshape(-1, WARP)):
            to, taken = (each[row] for each in places)
            if (to != to[0]).any() or (taken != taken[0]).any():
                raise DivergentCollective(
                    f"{instruction.text}: the lanes of the warp of {memory.thread(lanes[0])} give different addresses",
                    kernel=memory.kernel,
                    location=instruction.location,
                )
            first = Active.of(lanes[:1])
            raw = _read(memory, instruction, first, "shared", taken[:1])
            _write(memory, instruction, first, "global", to[:1], raw)
            machine.fenced_maps.discard(int(to[0]) - GLOBAL_BASE)

    return Operation(run, "warp")


def _read(memory: Memory, instruction: Instruction, one: Active, space: str, place: Array) -> bytes:
    """The 128 bytes that one lane reads."""
    return b"".join(memory.load(instruction, one, space, place + at, CHUNK_BYTES).tobytes() for at in _PIECES)


def _write(memory: Memory, instruction: Instruction, one: Active, space: str, place: Array, raw: bytes) -> None:
    """128 bytes that one lane writes."""
    for at in _PIECES:
        word = np.frombuffer(raw, dtype=np.complex128, count=1, offset=at)
        memory.store(instruction, one, space, place + at, word, CHUNK_BYTES)


def _illegal(memory: Memory, instruction: Instruction, lane: int, what: str) -> IllegalInstruction:
    return IllegalInstruction(
        f"{instruction.text}: {memory.thread(lane)}: {what}", kernel=memory.kernel, location=instruction.location
    )
