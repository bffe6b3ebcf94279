"""Emulates one launch: sets up memory, assembles the program, runs CTAs wave by wave, checks and copies outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warptile.arch import MAX_THREADS
from warptile.arch import arch as find_arch
from warptile.emulator import program
from warptile.emulator.async_ops.tensor_boxes import encode
from warptile.emulator.checks.output_writers import OutputWriters
from warptile.emulator.checks.races import RaceChecker
from warptile.emulator.counters import Counters, columns
from warptile.emulator.float_environment import default_float_environment
from warptile.emulator.lanes import POISON_BYTE, Array
from warptile.emulator.machine import LaunchGeometry, Machine, shared_reserved_bytes
from warptile.emulator.memory.accesses import GLOBAL_BASE, Memory
from warptile.emulator.memory.device_memory import PARAMETER_BYTES, PARAMETERS, DeviceMemory
from warptile.emulator.memory.spaces import MAPPED, WRITTEN, GlobalSpace, room
from warptile.emulator.recording import Recorder, Recording, RecordingScheduler
from warptile.emulator.scheduler import Scheduler
from warptile.emulator.steps import assemble
from warptile.emulator.sync.dependent_launch import PreviousLaunch
from warptile.emulator.sync.register_pool import initial_count
from warptile.errors import (
    ConflictingWrites,
    EmulationError,
    LayoutError,
    ParameterMismatch,
    SourceLocation,
    UnsupportedError,
    UnwrittenOutput,
)
from warptile.launch.access import Access, Rows
from warptile.launch.params import Params, Pointer, StructBytes
from warptile.launch.spec import Argument, Dim3, LaunchSpec
from warptile.launch.tensor_map import TensorMap
from warptile.ptx.instruction import PtxModule, Variable

ALL_CHECKS = frozenset({"overflow", "races", "reuse", "uninitialised", "writes"})
"""``uninitialised``: reads of memory, and uses of registers, that nothing has written. ``writes``: outputs left
unwritten, or written twice with different values by different threads. ``overflow``: f16 accumulators that become
infinite. ``races``: accesses of different threads to one place that nothing orders, and accesses too early for a
launch that overlaps the one before. ``reuse``: memory of an mbarrier
that becomes another one, or is written, without ``mbarrier.inval``. Bounds, alignment, collectives and deadlocks are
always checked."""

DEFAULT_CHECKS = ALL_CHECKS

LANES_PER_WAVE = 1 << 17
"""CTAs are run together up to about so many lanes; a larger grid takes several waves, in CTA order."""

SHARED_BYTES_PER_WAVE = 1 << 25
"""And up to about so much dynamic shared memory: what all SMs of a large GPU hold at once."""

MAX_CLUSTER_CTAS = 16
"""CTAs of the largest cluster; above 8 the kernel has to allow it on the GPU, which the launch does."""


@dataclass(frozen=True)
class LineCounters:
    """Counters of one CUDA source line (or PTX line, where there is none).

    Attributes:
        location: the line; ``ptx_line`` is that of its first instruction.
        counters: as in `EmulationReport`, for this line.
    """

    location: SourceLocation
    counters: dict[str, float]


@dataclass(frozen=True)
class EmulationReport:
    """The result of a launch.

    Attributes:
        counters: totals by the names of the command line's JSON, and what they are made of.
        lines: the same per source line, in order.
        output: what the kernel printed.
        unfinished_copies: `cp.async` copies that the kernel never waited for.
        steps: instructions that the scheduler issued, each for many lanes.
    """

    counters: dict[str, float]
    lines: tuple[LineCounters, ...]
    output: str
    unfinished_copies: int
    steps: int


@default_float_environment()
def emulate(
    module: PtxModule,
    spec: LaunchSpec,
    operands: Mapping[str, Array],
    *,
    accesses: Mapping[str, Access] | None = None,
    arch: str,
    schedule: str = "latest",
    checks: frozenset[str] = DEFAULT_CHECKS,
    recording: Recording | None = None,
    device: DeviceMemory | None = None,
) -> EmulationReport:
    """Run one kernel.

    Args:
        module: parsed PTX.
        spec: what to launch; its pointers name ``operands``.
        operands: C-contiguous arrays; those whose access says so are written and updated in place.
        accesses: how each operand may be used; one that is not named may only be read.
        arch: architecture to behave as, such as ``"sm_90a"``.
        schedule: when asynchronous copies finish: ``latest``, ``earliest`` or ``random:SEED``.
        checks: which of `ALL_CHECKS` to make.
        recording: an empty one, to note down what every warp executes.
        device: memory that outlives the launch, to whose addresses the arguments point. Operands, if there are any,
            stay in it.

    Raises:
        EmulationError: one of its subclasses, naming kernel, instruction and source line.
    """
    machine, layout = _prepare(module, spec, operands, accesses or {}, arch, schedule, checks, device)
    steps = assemble(module, layout, machine)
    geometry = machine.geometry
    entry = layout.routines[spec.entry].start
    recorder = None if recording is None else Recorder(recording, machine, steps)
    unfinished = 0
    for first in range(0, geometry.total_ctas, geometry.ctas):
        machine.start_wave(first, min(geometry.ctas, geometry.total_ctas - first))
        for routine in layout.routines.values():
            routine.registers.poison(machine.live)
        if recorder is None:
            Scheduler(machine, steps, entry).run()
        else:
            RecordingScheduler(machine, steps, entry, recorder).run()
        machine.products.end_wave()
        unfinished += sum(len(batch.lanes) for batch in machine.copies.unfinished()) + machine.bulk.unfinished
        machine.bulk.end_wave()
        machine.remote_stores.end_wave()
        if machine.memory.previous is not None:
            machine.memory.previous.end_wave()
    _check_outputs(machine, spec, operands, accesses or {}, checks)
    for name, access in (accesses or {}).items():
        if access.writes and name in spec.operands:
            _bytes_of(name, operands[name])[:] = machine.global_space.content(name)
    return EmulationReport(
        counters=_totals(machine.count),
        lines=_lines(machine.count, steps),
        output="".join(machine.output),
        unfinished_copies=unfinished,
        steps=machine.steps,
    )


def _prepare(
    module: PtxModule,
    spec: LaunchSpec,
    operands: Mapping[str, Array],
    accesses: Mapping[str, Access],
    arch: str,
    schedule: str,
    checks: frozenset[str],
    device: DeviceMemory | None,
) -> tuple[Machine, program.ProgramLayout]:
    """Everything that exists before the first instruction."""
    if not checks <= ALL_CHECKS:
        raise UnsupportedError(
            f"checks: got {', '.join(sorted(checks - ALL_CHECKS))}; there are {', '.join(sorted(ALL_CHECKS))}"
        )
    generation = find_arch(arch)
    geometry = _geometry(spec, _cluster(module, spec, generation.capability))
    reserved = shared_reserved_bytes(generation.capability)
    layout = program.lay_out(
        module,
        spec.entry,
        lanes=geometry.lanes,
        dynamic_shared_bytes=spec.dynamic_shared_bytes,
        shared_start=reserved,
    )
    used = layout.shared_bytes - reserved
    if used > generation.shared_bytes_per_block:
        raise UnsupportedError(
            f"{spec.entry} uses {used} bytes of shared memory; {arch} gives a CTA {generation.shared_bytes_per_block}"
        )
    sizes = {}
    for name in spec.operands:
        if name not in operands:
            raise EmulationError(
                f"operand {name} is in the launch but has no array; there are {', '.join(operands) or 'none'}"
            )
        sizes[name] = _bytes_of(name, operands[name]).size
    device = device or DeviceMemory(sum(map(room, sizes.values())))
    device.start_launch()
    space = device.space
    for name in spec.operands:
        access = accesses.get(name, Access())
        device.place(name, _bytes_of(name, operands[name]), writable=access.writes)
        if access.holds is not None:
            _forget_all_but(space, name, access.holds)
    parameters = _fill_parameters(space, layout.entry.parameters, spec)
    symbols = {**device.load(module), **layout.shared, **parameters}
    memory = Memory(
        space,
        geometry,
        kernel=spec.entry,
        shared_bytes=layout.shared_bytes,
        local_bytes=layout.local_bytes,
        check_uninitialised="uninitialised" in checks,
        check_reuse="reuse" in checks,
    )
    if "races" in checks:
        memory.races = RaceChecker(
            memory,
            geometry,
            geometry.lanes,
            rows={name: access.complete for name, access in accesses.items() if access.complete is not None},
            shared=layout.shared,
        )
        if spec.overlaps_previous:
            memory.previous = PreviousLaunch(geometry.lanes, spec.operands, spec.entry, memory.thread)
    if "writes" in checks:
        whole = [name for name, access in accesses.items() if access.complete is not None and space.has(name)]
        memory.writers = OutputWriters({name: space.named(name).size for name in whole})
    machine = Machine(
        geometry,
        memory,
        Counters(layout.length),
        kernel=spec.entry,
        arch_capability=generation.capability,
        symbols=symbols,
        shared=layout.shared,
        dynamic_shared_bytes=spec.dynamic_shared_bytes,
        schedule=schedule,
        checks=checks,
        registers_per_thread=initial_count(
            layout.entry.directives,
            (each for routine in layout.routines.values() for each in routine.function.body or ()),
        ),
    )
    return machine, layout


def _cluster(module: PtxModule, spec: LaunchSpec, capability: int) -> Dim3:
    """The CTAs of a cluster: what the launch says, or else the kernel's own `__cluster_dims__`."""
    entry = module.functions.get(spec.entry)
    given = (*entry.directives.get("reqnctapercluster", ()), 1, 1, 1)[:3] if entry is not None else (1, 1, 1)
    built = (given[0], given[1], given[2])
    cluster = built if spec.cluster == (1, 1, 1) else spec.cluster
    if built not in ((1, 1, 1), cluster):
        raise UnsupportedError(f"cluster: got {spec.cluster}; {spec.entry} is compiled for clusters of {built}")
    if cluster == (1, 1, 1):
        return cluster
    if capability < 90:
        raise UnsupportedError(f"cluster: got {cluster}; clusters begin with sm_90, this is sm_{capability}")
    ctas = cluster[0] * cluster[1] * cluster[2]
    if min(cluster) < 1 or ctas > MAX_CLUSTER_CTAS:
        raise UnsupportedError(f"cluster: got {cluster}, {ctas} CTAs; a cluster has 1 to {MAX_CLUSTER_CTAS}")
    if any(extent % size for extent, size in zip(spec.grid, cluster, strict=True)):
        raise UnsupportedError(f"cluster: got {cluster} with grid {spec.grid}: the grid is not a multiple of it")
    return cluster


def _geometry(spec: LaunchSpec, cluster: Dim3) -> LaunchGeometry:
    threads = spec.block[0] * spec.block[1] * spec.block[2]
    if not 1 <= threads <= MAX_THREADS or min(*spec.grid, *spec.block) < 1:
        raise UnsupportedError(
            f"grid {spec.grid}, block {spec.block}: every extent is at least 1 and a CTA has at most {MAX_THREADS} "
            "threads"
        )
    total = spec.grid[0] * spec.grid[1] * spec.grid[2]
    together = max(1, min(total, LANES_PER_WAVE // (-(-threads // 32) * 32)))
    if spec.dynamic_shared_bytes:
        together = max(1, min(together, SHARED_BYTES_PER_WAVE // spec.dynamic_shared_bytes))
    ctas = cluster[0] * cluster[1] * cluster[2]
    return LaunchGeometry(spec.grid, spec.block, max(1, together // ctas) * ctas, cluster)


def _bytes_of(name: str, array: Array) -> NDArray[np.uint8]:
    if not array.flags.c_contiguous:
        raise LayoutError(f"operand {name} is not C-contiguous; pass numpy.ascontiguousarray({name.lower()})")
    return array.reshape(-1).view(np.uint8)


def _forget_all_but(space: GlobalSpace, name: str, rows: Rows) -> None:
    """Make what an operand holds outside ``rows`` unknown, as if nothing had ever written it."""
    home = space.named(name)
    home.initialised = False
    unknown = np.ones(home.size, dtype=np.bool_)
    unknown[_places(rows)] = False
    space.data[home.start : home.start + home.size][unknown] = POISON_BYTE
    space.shadow[home.start : home.start + home.size][unknown] = MAPPED


def _places(rows: Rows) -> NDArray[np.intp]:
    """Where each byte of each row lies: (matrices, rows, bytes of a row)."""
    starts = np.arange(rows.matrices)[:, None, None] * rows.matrix_stride_bytes
    starts = starts + np.arange(rows.count)[:, None] * rows.stride_bytes
    return rows.offset_bytes + starts + np.arange(rows.columns * rows.element_bytes)


def _fill_parameters(space: GlobalSpace, parameters: tuple[object, ...], spec: LaunchSpec) -> dict[str, int]:
    """Lay the arguments out as the driver does: each at its alignment. Returns the address of each parameter."""
    if len(parameters) != len(spec.arguments):
        raise ParameterMismatch(
            f"{spec.entry} takes {len(parameters)} parameters and the launch gives {len(spec.arguments)}",
            kernel=spec.entry,
        )
    content = bytearray(space.named(PARAMETERS).size)
    addresses = {}
    top = 0
    for number, (parameter, argument) in enumerate(zip(parameters, spec.arguments, strict=True)):
        assert isinstance(parameter, Variable)
        top = -(-top // parameter.alignment_bytes) * parameter.alignment_bytes
        addresses[parameter.name] = GLOBAL_BASE + space.named(PARAMETERS).start + top
        raw = _argument_bytes(space, argument)
        if len(raw) != parameter.size_bytes:
            raise ParameterMismatch(
                f"parameter {number}, {parameter.name}, has {parameter.size_bytes} bytes in the kernel; the launch "
                f"gives {len(raw)}: {_described(argument)}",
                kernel=spec.entry,
            )
        if top + len(raw) > PARAMETER_BYTES:
            raise ParameterMismatch(
                f"parameter {number}, {parameter.name}, ends at byte {top + len(raw)}; a kernel has at most "
                f"{PARAMETER_BYTES} bytes of parameters",
                kernel=spec.entry,
            )
        content[top : top + len(raw)] = raw
        top += len(raw)
    space.fill(PARAMETERS, bytes(content), writable=False)
    return addresses


def _described(argument: Argument) -> str:
    """An argument in a few words, for messages; of a struct its members and their offsets."""
    if isinstance(argument, Params):
        members = ", ".join(f"{name} at {argument.offsets[name]}" for name, _ in argument.members)
        return f"a struct of {members or 'no members'}"
    if isinstance(argument, StructBytes):
        return f"a struct of {argument.size_bytes} bytes"
    if isinstance(argument, TensorMap):
        return f"a tensor map of {argument.operand}"
    if isinstance(argument, Pointer):
        return f"a pointer to {argument.operand}" if argument.operand is not None else "a null pointer"
    return f"{argument.type} {argument.value}"


def _argument_bytes(space: GlobalSpace, argument: Argument) -> bytes:
    if isinstance(argument, Params | StructBytes):
        return argument.encoded(lambda field: _argument_bytes(space, field))
    if isinstance(argument, TensorMap):
        start = GLOBAL_BASE + space.named(argument.operand).start + argument.offset_bytes
        return encode(*argument.placed(start))
    if isinstance(argument, Pointer):
        address = 0
        if argument.operand is not None:
            address = GLOBAL_BASE + space.named(argument.operand).start + argument.offset_bytes
        return address.to_bytes(8, "little")
    return argument.encoded


def _check_outputs(
    machine: Machine,
    spec: LaunchSpec,
    operands: Mapping[str, Array],
    accesses: Mapping[str, Access],
    checks: frozenset[str],
) -> None:
    """Every element that must be written has been, and no two threads disagreed about one."""
    if "writes" not in checks:
        return
    for name, access in accesses.items():
        rows = access.complete
        if rows is None or not machine.global_space.has(name) or not rows.count or not rows.columns:
            continue
        home = machine.global_space.named(name)
        shadow = machine.global_space.shadow[home.start : home.start + home.size]
        places = _places(rows)
        missing = (shadow[places] & WRITTEN) == 0
        if missing.any():
            elements = missing.reshape(*places.shape[:2], rows.columns, rows.element_bytes).any(axis=3)
            index = np.unravel_index(int(np.argmax(elements)), elements.shape)
            shown = ", ".join(str(int(x)) for x in index[rows.matrices == 1 :])
            raise UnwrittenOutput(
                f"{name}[{shown}] was never written: {int(elements.sum())} of {elements.size} elements "
                f"are as they were before the launch",
                kernel=spec.entry,
            )
    conflict = machine.memory.writers.conflict if machine.memory.writers is not None else None
    if conflict is not None:
        name, place, instruction = conflict
        rows = accesses[name].complete
        assert rows is not None
        shown = ", ".join(map(str, rows.element(place)))
        raise ConflictingWrites(
            f"{name}[{shown}] is written by two threads with different values: {instruction.text}",
            kernel=spec.entry,
            location=instruction.location,
        )


def _totals(count: Counters) -> dict[str, float]:
    totals = count.total()
    traffic = totals["global_load_bytes"] + totals["global_store_bytes"]
    totals["arithmetic_intensity"] = totals["tensor_flops"] / traffic if traffic else 0.0
    return totals


def _lines(count: Counters, steps: list[program.ProgramStep]) -> tuple[LineCounters, ...]:
    """The table of counts, summed by source line."""
    rows: dict[tuple[str | None, int], list[int]] = {}
    first: dict[tuple[str | None, int], SourceLocation] = {}
    for position, step in enumerate(steps):
        if step.location is None or not count.table[position].any():
            continue
        at = step.location
        key = (at.file, at.line) if at.file and at.line else (None, at.ptx_line)
        rows.setdefault(key, []).append(position)
        first.setdefault(key, at)
    ordered = sorted(rows, key=lambda key: (key[0] or "", key[1]))
    return tuple(LineCounters(first[key], columns([count.table[i] for i in rows[key]])) for key in ordered)
