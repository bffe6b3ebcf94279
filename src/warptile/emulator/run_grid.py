"""Emulates one launch: sets up memory, assembles the program, runs CTAs wave by wave, checks and copies outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warptile.arch import arch as find_arch
from warptile.emulator import program
from warptile.emulator.async_ops.concurrent_streams import ConcurrentStreams
from warptile.emulator.checks.cas_loops import first_reads
from warptile.emulator.checks.deciding_reads import DecidingReads
from warptile.emulator.checks.leaks import report_leaks
from warptile.emulator.checks.output_writers import OutputWriters
from warptile.emulator.checks.race_reports import unmangled
from warptile.emulator.checks.races import RaceChecker
from warptile.emulator.checks.unwaited_reads import UnwaitedReads
from warptile.emulator.compiled_steps.compiled_program import CompiledWhenItPays
from warptile.emulator.counters import Counters, columns
from warptile.emulator.findings import ALL_CHECKS, DEFAULT_CHECKS, MODEL_CHECKS, EmulationFinding, Findings
from warptile.emulator.first_launch import say_what_takes_long
from warptile.emulator.float_environment import default_float_environment
from warptile.emulator.lanes import Array
from warptile.emulator.launch_geometry import check_residency, launch_geometry
from warptile.emulator.launch_memory import bytes_of, bytes_of_rows, fill_parameters, place_operands
from warptile.emulator.machine import Machine
from warptile.emulator.memory.accesses import Memory, UndefinedLoad
from warptile.emulator.memory.device_memory import DeviceMemory, DeviceSnapshot
from warptile.emulator.memory.spaces import WRITTEN
from warptile.emulator.recording import Recorder, Recording, RecordingScheduler
from warptile.emulator.scheduler import Scheduler
from warptile.emulator.steps import assemble
from warptile.emulator.sync.dependent_launch import PreviousLaunch
from warptile.emulator.sync.register_pool import initial_count
from warptile.errors import (
    ConflictingWrites,
    EmulationError,
    SourceLocation,
    UnsupportedError,
    UnwrittenOutput,
)
from warptile.launch.access import Access
from warptile.launch.concurrent_stream import ConcurrentStream
from warptile.launch.spec import LaunchSpec, placed_fields
from warptile.launch.tensor_map import TensorMap
from warptile.ptx.instruction import PtxModule


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
        findings: what the checks have found, if `emulate` collects it.
        finished: whether the kernel ran to its end. If not, the last finding says why, and no operand is changed.
    """

    counters: dict[str, float]
    lines: tuple[LineCounters, ...]
    output: str
    unfinished_copies: int
    steps: int
    findings: tuple[EmulationFinding, ...] = ()
    finished: bool = True


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
    collect: bool = False,
    interpreted: bool = False,
    beside: Sequence[ConcurrentStream] = (),
) -> EmulationReport:
    """Run one kernel.

    Args:
        module: parsed PTX.
        spec: what to launch; its pointers name ``operands``.
        operands: C-contiguous arrays; those whose access says so are written and updated in place.
        accesses: how each operand may be used; one that is not named may only be read.
        arch: architecture to behave as, such as ``"sm_90a"``.
        schedule: ``latest``, ``earliest`` or ``random:SEED``: when asynchronous copies finish and, for a seed, which
            blocks and warps run first.
        checks: names in `ALL_CHECKS`; `select_checks` makes them of options.
        recording: an empty one, to note down what every warp executes.
        device: memory that outlives the launch, to whose addresses the arguments point. Operands, if there are any,
            stay in it.
        collect: note down what the checks find in the report, and go on where that is possible.
        interpreted: execute every instruction by the interpreter. The report and the operands are the same.
        beside: streams that copy into the operands, from this GPU or others, and set flags, while the kernel runs. All
            CTAs of the launch have to be co-resident. What its operations write has to be writable (``accesses``); it
            is updated like what the kernel writes.

    Raises:
        EmulationError: one of its subclasses, naming kernel, instruction and source line: what the first check has
            found, or with ``collect`` only what says nothing about the kernel, such as an unknown instruction.
    """
    if not checks <= ALL_CHECKS:
        raise UnsupportedError(
            f"checks: got {', '.join(sorted(checks - ALL_CHECKS))}; there are {', '.join(sorted(ALL_CHECKS))}"
        )
    say_what_takes_long()
    launch = Launch(module, spec, accesses or {}, arch, schedule, interpreted, tuple(beside))
    alone = device is None
    device = place_operands(module, spec, operands, launch.accesses, device, launch.operands)
    before = device.remember() if collect or "uninitialised" in checks else None
    findings = Findings(collect=collect, schedule=schedule)
    run, findings = _run_followed(launch, device, before, checks, findings, recording)
    if run.finished:
        for name, access in launch.accesses.items():
            if access.writes and name in launch.operands:
                bytes_of(name, operands[name])[:] = device.space.content(name)
        if alone and "leaks" in checks:
            report_leaks(device.heap, findings, spec.entry)
    found = findings.all()
    lenient = checks - MODEL_CHECKS
    if collect and before is not None and lenient != checks and any(each.check == "races" for each in found):
        after = device.snapshot()
        device.restore(before)
        again, without = _run_followed(launch, device, before, lenient, findings.empty(), None)
        again.release()
        device.restore(after)
        found = findings.weighed(without)
    device.space.end_undo()
    report = EmulationReport(
        counters=_totals(run.machine.count),
        lines=_lines(run.machine.count, run.steps),
        output="".join(run.machine.output),
        unfinished_copies=run.unfinished_copies,
        steps=run.machine.steps,
        findings=found,
        finished=run.finished,
    )
    run.release()
    return report


@dataclass(frozen=True)
class Launch:
    """What is run: the arguments of `emulate` that say so."""

    module: PtxModule
    spec: LaunchSpec
    accesses: Mapping[str, Access]
    arch: str
    schedule: str
    interpreted: bool = False
    beside: tuple[ConcurrentStream, ...] = ()

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of all memory that the launch and the streams beside it use."""
        return tuple(dict.fromkeys((*self.spec.operands, *(name for each in self.beside for name in each.operands))))


@dataclass
class _Run:
    """A launch that has been run, to its end unless an error stopped it."""

    machine: Machine
    layout: program.ProgramLayout
    steps: list[program.ProgramStep]
    compiled: CompiledWhenItPays
    unfinished_copies: int = 0
    finished: bool = False

    def release(self) -> None:
        """Free the memory of the launch now: its parts refer to each other, so that they would otherwise stay until
        Python looks for cycles. What has been read of them, such as counters, remains."""
        self.steps.clear()
        machine = self.machine
        parts: list[object] = [routine.registers for routine in self.layout.routines.values()]
        parts += [machine.copies, machine.bulk, machine.remote_stores, machine.memory.races, machine.memory, machine]
        parts.append(self.compiled)
        for part in parts:
            if part is not None:
                vars(part).clear()


def _run_followed(
    launch: Launch,
    device: DeviceMemory,
    before: DeviceSnapshot | None,
    checks: frozenset[str],
    findings: Findings,
    recording: Recording | None,
) -> tuple[_Run, Findings]:
    """Run a launch, and if it loads memory that nothing has written, once more from what memory held ``before``: with a
    look at where such values go, which takes time and few kernels need. Loads of shared and of global memory are
    followed each only if some meet such a value; those of shared memory at once if that is likely."""
    follows_loads = frozenset({"shared"} if before is not None and _has_maps_of_parts(launch.spec) else ())
    while True:
        try:
            return _run(launch, device, checks, findings, recording, follows_loads=follows_loads), findings
        except UndefinedLoad as met:
            assert before is not None
            device.restore(before)
            if recording is not None:
                recording.notes.clear()
            findings = findings.empty()
            follows_loads |= {met.space}


def _has_maps_of_parts(spec: LaunchSpec) -> bool:
    """Whether tensor maps of one operand differ in their boxes alone. Kernels have such where tiles at the end of an
    operand are loaded in part; the rest of a tile in shared memory is then unwritten when it is multiplied."""
    maps = {field for each in spec.arguments for _, _, field in placed_fields(each) if isinstance(field, TensorMap)}
    return len({tuple((vars(each) | {"box": ()}).values()) for each in maps}) < len(maps)


def _run(
    launch: Launch,
    device: DeviceMemory,
    checks: frozenset[str],
    findings: Findings,
    recording: Recording | None,
    *,
    follows_loads: frozenset[str],
) -> _Run:
    """Run a launch once, whose operands lie in ``device``."""
    machine, layout = _prepare(launch, device, checks, findings, follows_loads=follows_loads)
    steps = assemble(launch.module, layout, machine)
    geometry = machine.geometry
    recorder = None if recording is None else Recorder(recording, machine, steps)
    compiled = CompiledWhenItPays(machine, layout, steps)
    run = _Run(machine, layout, steps, compiled)
    try:
        waves = list(range(0, geometry.total_ctas, geometry.ctas))
        for first in waves if machine.turns is None else machine.turns.waves(waves):
            machine.start_wave(first, min(geometry.ctas, geometry.total_ctas - first))
            for routine in layout.routines.values():
                routine.registers.poison(machine.live)
            compiled.start_wave()
            if machine.memory.streams is not None:
                machine.memory.streams.start()
            if recorder is not None:
                scheduler: Scheduler = RecordingScheduler(machine, steps, layout, recorder)
            else:
                scheduler = Scheduler(machine, steps, layout, *(() if launch.interpreted else (compiled,)))
            try:
                scheduler.run()
            finally:
                vars(scheduler).clear()  # its barriers refer to it
            machine.products.end_wave()
            run.unfinished_copies += sum(len(batch.lanes) for batch in machine.copies.unfinished())
            run.unfinished_copies += machine.bulk.unfinished
            machine.bulk.end_wave()
            machine.remote_stores.end_wave()
            if machine.memory.previous is not None:
                machine.memory.previous.end_wave()
        if machine.memory.streams is not None:
            machine.memory.streams.finish()
        _check_outputs(machine, launch, checks)
        run.finished = True
    except EmulationError as error:
        findings.stop(error)
    return run


def _prepare(
    launch: Launch, device: DeviceMemory, checks: frozenset[str], findings: Findings, *, follows_loads: frozenset[str]
) -> tuple[Machine, program.ProgramLayout]:
    """Everything that exists before the first instruction."""
    module, spec, accesses, arch = launch.module, launch.spec, launch.accesses, launch.arch
    generation = find_arch(arch)
    geometry = launch_geometry(module, spec, generation.capability)
    reserved = generation.reserved_shared_bytes
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
            f"the kernel uses {used} bytes of shared memory; {arch} gives a CTA {generation.shared_bytes_per_block}"
        )
    if spec.cooperative:
        check_residency(spec, generation, layout.shared_bytes)
    if layout.allocates:
        device.heap.reserve()
    space = device.space
    parameters = fill_parameters(space, layout.entry.parameters, spec)
    symbols = {**device.load(module), **layout.shared, **parameters}
    memory = Memory(
        space,
        geometry,
        kernel=spec.entry,
        shared_bytes=layout.shared_bytes,
        local_bytes=layout.local_bytes,
        check_uninitialised="uninitialised" in checks,
        check_padding="padding" in checks,
        check_reuse="reuse" in checks,
        follows_loads=follows_loads,
        findings=findings,
    )
    memory.shared_variables = sorted((start, unmangled(name)) for name, start in layout.shared.items())
    if "races" in checks:
        memory.races = RaceChecker(
            memory,
            geometry,
            geometry.lanes,
            rows={name: access.complete for name, access in accesses.items() if access.complete is not None},
            shared=layout.shared,
            checks=checks,
            first_reads=first_reads(routine.function for routine in layout.routines.values()),
            deciding=DecidingReads(routine.function for routine in layout.routines.values()),
            unwaited=UnwaitedReads(routine.function for routine in layout.routines.values()),
            streams=bool(launch.beside),
        )
        if spec.overlaps_previous:
            memory.previous = PreviousLaunch(geometry.lanes, spec.operands, spec.entry, memory.thread, findings)
    if launch.beside:
        if geometry.ctas < geometry.total_ctas:
            raise UnsupportedError(
                f"beside: {spec.entry} has {geometry.total_ctas} CTAs and {geometry.ctas} of them run at a time; with "
                "streams beside a launch all of them have to: launch fewer"
            )
        first_lane = memory.races.stream_lane if memory.races is not None else 0
        memory.streams = ConcurrentStreams(memory, launch.beside, launch.schedule, first_lane)
    if "writes" in checks:
        whole = [name for name, access in accesses.items() if access.complete is not None and space.has(name)]
        memory.writers = OutputWriters({name: space.named(name).size for name in whole})
    instructions = [each for routine in layout.routines.values() for each in routine.function.body or ()]
    machine = Machine(
        geometry,
        memory,
        Counters(layout.length),
        kernel=spec.entry,
        arch_capability=generation.capability,
        symbols=symbols,
        shared=layout.shared,
        dynamic_shared_bytes=spec.dynamic_shared_bytes,
        schedule=launch.schedule,
        checks=checks,
        heap=device.heap,
        grid_workspace=device.grid_workspace() if spec.cooperative else 0,
        stack=layout.stack,
        registers_per_thread=initial_count(layout.entry.directives, instructions),
        warpgroups=any(each.opcode == "wgmma" for each in instructions),
    )
    return machine, layout


def _check_outputs(machine: Machine, launch: Launch, checks: frozenset[str]) -> None:
    """Report elements that must be written and have not been, or by two threads with different values."""
    if "writes" not in checks:
        return
    spec, accesses, report = launch.spec, launch.accesses, machine.memory.findings.report
    for name, access in accesses.items():
        rows = access.complete
        if rows is None or not machine.global_space.has(name) or not rows.count or not rows.columns:
            continue
        home = machine.global_space.named(name)
        shadow = machine.global_space.shadow[home.start : home.start + home.size]
        missing = (bytes_of_rows(shadow, rows) & WRITTEN) == 0
        if missing.any():
            elements = missing.reshape(*missing.shape[:2], rows.columns, rows.element_bytes).any(axis=3)
            index = np.unravel_index(int(np.argmax(elements)), elements.shape)
            shown = ", ".join(str(int(x)) for x in index[rows.matrices == 1 :])
            report(UnwrittenOutput(
                f"{name}[{shown}] was never written: {int(elements.sum())} of {elements.size} elements "
                f"are as they were before the launch",
                kernel=spec.entry,
            ))  # fmt: skip
    conflict = machine.memory.writers.conflict if machine.memory.writers is not None else None
    if conflict is not None:
        name, place, instruction = conflict
        rows = accesses[name].complete
        assert rows is not None
        shown = ", ".join(map(str, rows.element(place)))
        report(ConflictingWrites(
            f"{name}[{shown}] is written by two threads with different values: {instruction.text}",
            kernel=spec.entry,
            location=instruction.location,
        ))  # fmt: skip


def _totals(count: Counters) -> dict[str, float]:
    totals = count.total()
    traffic = totals["global_load_bytes"] + totals["global_store_bytes"]
    totals["arithmetic_intensity"] = totals["tensor_flops"] / traffic if traffic else 0.0
    return totals


def _lines(count: Counters, steps: list[program.ProgramStep]) -> tuple[LineCounters, ...]:
    """The table of counts, summed by source line."""
    rows: dict[tuple[str | None, int], list[int]] = {}
    first: dict[tuple[str | None, int], SourceLocation] = {}
    for position in np.flatnonzero(count.table.any(axis=1)).tolist():
        at = steps[position].location
        if at is None:
            continue
        key = (at.file, at.line) if at.file and at.line else (None, at.ptx_line)
        rows.setdefault(key, []).append(position)
        first.setdefault(key, at)
    ordered = sorted(rows, key=lambda key: (key[0] or "", key[1]))
    return tuple(LineCounters(first[key], columns(count.table[rows[key]])) for key in ordered)
