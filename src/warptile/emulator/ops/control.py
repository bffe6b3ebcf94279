"""Fences, `setmaxnreg`, `griddepcontrol` and cache policies."""

from __future__ import annotations

import numpy as np

from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import Active
from warptile.emulator.memory.accesses import GLOBAL_BASE
from warptile.emulator.ops.load_store import address_source
from warptile.emulator.sync.register_pool import STEP, Resize
from warptile.launch.tensor_map import TENSOR_MAP_BYTES
from warptile.ptx.instruction import Immediate, Instruction

_SCOPES = ("cta", "cluster", "gpu", "sys", "gl")
_PROXIES = ("alias", "async", "tensormap::generic", "async::generic")


@builder("fence", "membar")
def build_fence(instruction: Instruction, assembler: Assembler) -> Operation:
    """Every fence: memory is sequentially consistent here, so they change no value, only what is a race."""
    modifiers = Modifiers(instruction)
    races = assembler.machine.memory.races
    spaces: tuple[str, ...] = ()
    kind = ""
    through = modifiers.flag("proxy")
    if through:
        kind = modifiers.need(*_PROXIES)
        named = modifiers.take("global", "shared::cta", "shared::cluster") if kind == "async" else None
        spaces = ("shared", "global") if named is None else ("global" if named == "global" else "shared",)
        if not kind.startswith("async"):
            spaces = ()
    made = modifiers.flag("mbarrier_init")
    restricted = modifiers.take("sync_restrict::shared::cta", "sync_restrict::shared::cluster")
    semantics = modifiers.take("sc", "acq_rel", "acquire", "release")
    scope = modifiers.take(*_SCOPES)
    modifiers.done()
    if (made or restricted) and (semantics not in ("acquire", "release") or scope != "cluster"):
        raise unknown(instruction, "needs .acquire or .release, and .cluster")
    if scope is None and (semantics is not None or not through):
        raise unknown(instruction, f"needs one of .{', .'.join(_SCOPES)}")
    if through and kind == "tensormap::generic":
        return _map_fence(instruction, assembler, semantics)
    if races is None or (through and not spaces):
        return Operation(_no_effect)
    if through:
        return Operation(lambda active: races.proxy_fence(active, spaces))
    return Operation(lambda active: races.fence(instruction, active))


def _map_fence(instruction: Instruction, assembler: Assembler, semantics: str | None) -> Operation:
    """`fence.proxy.tensormap::generic`: with .acquire, copies may use the tensor map at the address behind it."""
    if semantics == "release":
        return Operation(_no_effect)
    if semantics != "acquire" or len(instruction.operands) != 2:
        raise unknown(instruction, "takes .release, or .acquire with [address], 128")
    size = instruction.operands[1]
    if not isinstance(size, Immediate) or size.value != TENSOR_MAP_BYTES:
        raise unknown(instruction, f"the size must be {TENSOR_MAP_BYTES}")
    address, _ = address_source(assembler, instruction.operands[0], "generic")
    fenced = assembler.machine.fenced_maps
    return Operation(lambda active: fenced.update((np.unique(address(active)) - GLOBAL_BASE).tolist()))


@builder("setmaxnreg")
def build_register_count(instruction: Instruction, assembler: Assembler) -> Operation:
    """`setmaxnreg.{inc,dec}.sync.aligned.u32 count`: give registers to the CTA's pool, or take them from it."""
    modifiers = Modifiers(instruction)
    more = modifiers.need("inc", "dec") == "inc"
    for word in ("sync", "aligned", "u32"):
        modifiers.need(word)
    modifiers.done()
    operand = instruction.operands[0]
    if not isinstance(operand, Immediate):
        raise unknown(instruction, "the number of registers must be a constant")
    count = int(operand.value)
    if count % STEP or not 24 <= count <= 256:
        raise unknown(instruction, f"{count} registers: it is a multiple of {STEP} from 24 to 256")
    return Operation(_no_effect, "warp", wait=Resize(assembler.machine.pool, instruction, count, more))


@builder("griddepcontrol")
def build_dependent_launch(instruction: Instruction, assembler: Assembler) -> Operation:
    """`griddepcontrol.{launch_dependents,wait}`: the launches before this one are over, and none follows."""
    modifiers = Modifiers(instruction)
    waits = modifiers.need("launch_dependents", "wait") == "wait"
    modifiers.done()
    previous = assembler.machine.memory.previous
    if waits and previous is not None:
        return Operation(previous.waited)
    return Operation(_no_effect)


_PRIORITIES = ("L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged")


@builder("createpolicy")
def build_policy(instruction: Instruction, assembler: Assembler) -> Operation:
    """`createpolicy.{fractional,range,cvt}`: a word for cache hints, which change no value; no cache is modelled."""
    modifiers = Modifiers(instruction)
    kind = modifiers.need("fractional", "range", "cvt")
    if kind == "cvt":
        modifiers.need("L2")
    else:
        if kind == "range":
            modifiers.flag("global")
        modifiers.need(*_PRIORITIES)
        modifiers.take("L2::evict_first", "L2::evict_unchanged")
    modifiers.need("b64")
    modifiers.done()
    target = assembler.destination(instruction.operands[0], np.uint64)
    return Operation(lambda active: target(active, np.zeros(1, dtype=np.uint64)))


def _no_effect(active: Active) -> None:
    """Nothing that a value depends on."""
