"""Replays a recorded launch with clocks.

Warps run in the order of time. Within a basic block an instruction may issue as soon as its operands are there, its
partition has an issue slot and its unit is free: ptxas moves loads up so that they overlap with other work of the
block, so the order that PTX has within one is not what runs. Between blocks, and at barriers and waits, a warp goes on
when all of the block has issued. A block that uses registers that a load has not filled yet waits for them.

Asynchronous work goes on beside the warps: ``cp.async`` groups, TMA copies that complete phases of mbarriers, ``wgmma``
groups, bulk stores. Who waits for whom is what was recorded (`warptile.emulator.recording`), so a replay cannot come to
another result; only the times are new.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from warptile.arch import H200
from warptile.emulator.counters import FIELDS, SECTOR_BYTES
from warptile.emulator.recording import Arrival, BulkCopy, Meeting, Note, PhaseWait, Recording
from warptile.ptx.instruction import Instruction
from warptile.replay import clock_costs as costs
from warptile.replay.busy_time import BusyTime
from warptile.replay.clock_costs import PARTITIONS, cost_of
from warptile.replay.timeline import Timeline, TraceSpan, merged

Key = tuple[object, ...]
"""What a phase is found by: launch, and the mbarrier's CTA, place and phase, or a barrier of a cluster."""

_COLUMN = {name: place for place, name in enumerate(FIELDS)}
_WAVEFRONTS = [_COLUMN[f"shared_{kind}_wavefronts"] for kind in ("load", "store", "async_copy")]
_SECTORS = [_COLUMN[name] for name in ("global_load_sectors", "global_store_sectors")]
_OPERANDS = _COLUMN["tensor_operand_wavefronts"]

LAUNCH_GAP_US = 1.5
"""From the end of a launch to the start of the next one in the stream, without programmatic dependent launch: near
``launch_us`` of the fitted cost model."""


@dataclass
class _Sm:
    """When each unit of an SM is free, and what its tensor cores do when.

    Attributes:
        prefix: what the names of its tracks begin with, where there are several SMs.
        group: of its tracks.
    """

    prefix: str
    group: str
    ports: list[float] = field(default_factory=lambda: [0.0] * PARTITIONS)
    units: dict[tuple[str, int], float] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    tensor_cores: list[BusyTime] = field(default_factory=lambda: [BusyTime() for _ in range(PARTITIONS)])

    def take(self, unit: str, partition: int, not_before: float, clocks: float, since: float) -> float:
        """When a unit that was idle from ``since`` on can begin ``clocks`` of work, not before some time."""
        free = max(self.units.get((unit, partition), 0.0), since)
        self.units[unit, partition] = free + clocks
        self.busy[unit] += clocks / (PARTITIONS if partition >= 0 else 1)
        return max(free, not_before)


@dataclass
class _Phase:
    """What waits for a number of contributions."""

    left: int = 0
    done: float = 0.0
    waiting: list[_Warp] = field(default_factory=list)


@dataclass
class _Warp:
    """One warp of one launch."""

    launch: int
    number: int
    cta: int
    sm: _Sm
    notes: list[Note]
    name: str
    time: float = 0.0
    cursor: int = 0
    position: int = 0
    ready: dict[str, float] = field(default_factory=dict)
    copies: list[float] = field(default_factory=list)
    copy_groups: list[float] = field(default_factory=list)
    products: list[float] = field(default_factory=list)
    product_groups: list[float] = field(default_factory=list)
    stores: list[tuple[float, float]] = field(default_factory=list)
    store_groups: list[tuple[float, float]] = field(default_factory=list)
    cluster_arrivals: int = 0
    waiting_since: float = 0.0
    waiting_for: tuple[str, str, str] = ("", "", "")
    spans: list[TraceSpan] = field(default_factory=list)


@dataclass
class _Barrier:
    """Threads that have come to a barrier of a CTA."""

    threads: int = 0
    latest: float = 0.0
    waiting: list[_Warp] = field(default_factory=list)


class Replayer:
    """One replay.

    Args:
        recording: of a launch.
        sms: CTAs of the grid that run on each SM; all of a cluster, if there are clusters.
        clock_mhz: of the SMs.
        launches: how many times the launch follows itself in a stream.
        overlaps: whether a launch may begin when every CTA of the one before has executed
            ``griddepcontrol.launch_dependents`` or ended (programmatic dependent launch).
        side_by_side: whether CTAs of two launches fit on an SM together; else the next one waits for the end of the
            CTA that is there.
    """

    def __init__(
        self,
        recording: Recording,
        sms: Sequence[Sequence[int]],
        *,
        clock_mhz: float = H200.clock_hz / 1e6,
        launches: int = 1,
        overlaps: bool = False,
        side_by_side: bool = False,
    ) -> None:
        self._recording = recording
        self._program = recording.program
        self._overlaps, self._side_by_side = overlaps, side_by_side
        self._clock_mhz = clock_mhz
        self._phases: dict[Key, _Phase] = defaultdict(_Phase)
        self._barriers: dict[tuple[int, int, int], _Barrier] = defaultdict(_Barrier)
        self._live: dict[tuple[int, int], int] = defaultdict(int)
        self._tracks: dict[str, list[TraceSpan]] = defaultdict(list)
        self._groups: dict[str, str] = {}
        self._running: list[tuple[float, int, _Warp]] = []
        self._clocks_at: dict[int, float] = defaultdict(float)
        self._count = 0
        self._held: list[list[_Warp]] = []
        self._triggered: set[tuple[int, int]] = set()
        self._started: set[int] = set()
        self._began: dict[tuple[int, int], float] = defaultdict(float)
        notes = self._notes_by_warp({cta for ctas in sms for cta in ctas})
        self._sms = (
            [_Sm(f"SM {number} ", f"units of SM {number}") for number in range(len(sms))]
            if len(sms) > 1
            else [_Sm("", "units of the SM")]
        )
        self._sm_of = {cta: sm for sm, ctas in zip(self._sms, sms, strict=True) for cta in ctas}
        for launch in range(launches):
            self._held.append(self._warps(launch, launches, sms, notes))
        self._count_contributions(launches, notes)

    def _notes_by_warp(self, ctas: set[int]) -> dict[int, list[Note]]:
        found: dict[int, list[Note]] = defaultdict(list)
        for note in self._recording.notes:
            for warp in note.warps:
                if warp // self._recording.warps_per_cta in ctas:
                    found[warp].append(note)
        return found

    def _warps(
        self, launch: int, launches: int, sms: Sequence[Sequence[int]], notes: dict[int, list[Note]]
    ) -> list[_Warp]:
        made = []
        several = f"launch {launch}, " if launches > 1 else ""
        for cta in [cta for ctas in sms for cta in ctas]:
            for inner in range(self._recording.warps_per_cta):
                number = cta * self._recording.warps_per_cta + inner
                if number in notes:
                    name = f"{several}CTA {cta} warp {inner}"
                    warp = _Warp(launch, number, cta, self._sm_of[cta], notes[number], name)
                    self._groups[name] = f"{several}CTA {cta}"
                    self._live[launch, cta] += 1
                    made.append(warp)
        return made

    def _count_contributions(self, launches: int, notes: dict[int, list[Note]]) -> None:
        """How many arrivals and copies each phase waits for: those that were recorded."""
        cluster = self._recording.cluster_ctas
        for number, own in notes.items():
            arrivals = 0
            for note in own:
                for effect in note.effects:
                    if isinstance(effect, Arrival | BulkCopy) and effect.warp == number and effect.phase is not None:
                        for launch in range(launches):
                            self._phases[launch, *effect.phase].left += 1
                instruction = self._program[note.position]
                if instruction is not None and _is_cluster_arrival(instruction):
                    for launch in range(launches):
                        key = (launch, "cluster", number // self._recording.warps_per_cta // cluster, arrivals)
                        self._phases[key].left += 1
                    arrivals += 1
        for launch, warps in enumerate(self._held):
            self._phases[launch, "trigger"].left = len({warp.cta for warp in warps})
            self._phases[launch, "end"].left = len(warps)

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> Timeline:
        """All warps, to their end."""
        for warp in self._held[0]:
            self._go(warp, 0.0)
        while self._running:
            _, _, warp = heapq.heappop(self._running)
            self._block(warp)
        return self._timeline()

    def _go(self, warp: _Warp, time: float) -> None:
        warp.time = time
        self._count += 1
        heapq.heappush(self._running, (time, self._count, warp))

    def _block(self, warp: _Warp) -> None:
        """Run a warp to the end of a basic block, or until it waits."""
        start = latest = warp.time
        shares: dict[str, float] = defaultdict(float)
        issues: list[tuple[float, int]] = []
        first: Instruction | None = None
        executed = 0
        while warp.cursor < len(warp.notes):
            note = warp.notes[warp.cursor]
            instruction = self._program[note.position]
            kind = "branch" if instruction is None else cost_of(instruction).kind
            if kind == "sync" or instruction is None:
                self._span(warp, start, latest, shares, first, executed)
                self._charge(start, issues)
                warp.time = latest
                warp.cursor += 1
                if instruction is None:
                    break
                self._clocks_at[note.position] += 1
                warp.position = note.position
                if not self._synchronize(warp, note, instruction):
                    return
                if self._running and self._running[0][0] < warp.time:
                    self._go(warp, warp.time)  # others run first
                    return
                start = latest = warp.time
                shares, issues, first, executed = defaultdict(float), [], None, 0
                continue
            first = first or instruction
            executed += 1
            issued, used = self._issue(warp, note, instruction, start)
            latest = max(latest, issued)
            issues.append((issued, note.position))
            if kind != "free":
                shares[kind] += used
            warp.cursor += 1
            if kind == "branch":
                break
        self._span(warp, start, latest, shares, first, executed)
        self._charge(start, issues)
        if warp.cursor < len(warp.notes):
            self._go(warp, latest)
        else:
            self._end(warp, latest)

    def _charge(self, start: float, issues: list[tuple[float, int]]) -> None:
        """Each instruction of a block is charged for the time since the one before it: what a sampling profiler sees,
        which names the instruction that a warp waits to issue."""
        for issued, position in sorted(issues):
            self._clocks_at[position] += max(issued - start, 0.0)
            start = max(start, issued)

    def _end(self, warp: _Warp, time: float) -> None:
        warp.time = time
        self._live[warp.launch, warp.cta] -= 1
        for number in range(16):
            if (warp.launch, warp.cta, number) in self._barriers:
                self._release_if_complete(warp, number, None)
        if self._live[warp.launch, warp.cta] == 0:
            self._trigger(warp.launch, warp.cta, time)
        self._contribute((warp.launch, "end"), time)
        self._start_next(warp.launch)

    def _trigger(self, launch: int, cta: int, time: float) -> None:
        """A CTA executes ``griddepcontrol.launch_dependents`` or ends: its first time counts."""
        if (launch, cta) not in self._triggered:
            self._triggered.add((launch, cta))
            self._contribute((launch, "trigger"), time)

    def _start_next(self, launch: int) -> None:
        """Begin the following launch when the one before has come so far."""
        if launch + 1 >= len(self._held) or launch + 1 in self._started:
            return
        early = self._overlaps and self._side_by_side
        gate = self._phases[launch, "trigger" if early else "end"]
        if gate.left == 0:
            self._started.add(launch + 1)
            gap = 0.0 if self._overlaps else LAUNCH_GAP_US * self._clock_mhz
            for warp in self._held[launch + 1]:
                self._began[launch + 1, warp.cta] = gate.done + gap
                self._go(warp, gate.done + gap)

    # -- instructions ------------------------------------------------------------------------------------------------

    def _issue(self, warp: _Warp, note: Note, instruction: Instruction, start: float) -> tuple[float, float]:
        """Issue an instruction; when, and how many clocks it keeps its unit busy."""
        cost, sm, partition = cost_of(instruction), warp.sm, warp.number % PARTITIONS
        operands = [warp.ready.get(name, 0.0) for name in self._recording.reads[note.position]]
        time = max(start, *operands) if operands else start
        if cost.kind == "free":
            self._write(warp, note, time)
            return start, 0.0
        slot = max(sm.ports[partition], start)
        sm.ports[partition] = slot + 1
        time = max(time, slot)
        sm.busy["issue"] += 1 / PARTITIONS
        if cost.kind == "copy":
            return self._copy(warp, note, instruction, time, start)
        if cost.unit == "lsu":
            return self._access(warp, note, cost, time, start)
        if cost.unit:
            time = sm.take(cost.unit, partition, time, cost.clocks, start)
        if cost.kind == "wgmma":
            wavefronts = note.counts[_OPERANDS] / len(note.warps)
            begin = sm.take("wgmma operands", -1, time, wavefronts, start)  # beside other accesses, which go first
            end = max(time + cost.clocks, begin + wavefronts)
            warp.products.append(end + costs.WGMMA_LATENCY)
            self._multiply(warp, time, cost.clocks, "wgmma", f"wgmma of {warp.name}", instruction)
            return slot + 1, cost.clocks
        if cost.kind == "tensor":
            self._multiply(warp, time, cost.clocks, "tensor", "mma", instruction)
        self._write(warp, note, time + cost.latency)
        return time + 1, cost.clocks

    def _write(self, warp: _Warp, note: Note, time: float) -> None:
        for name in self._recording.writes[note.position]:
            warp.ready[name] = time

    def _multiply(
        self, warp: _Warp, time: float, clocks: float, kind: str, text: str, instruction: Instruction
    ) -> None:
        """Draw work of a tensor core, in the first gap that it fits into."""
        partition = warp.number % PARTITIONS
        begin = warp.sm.tensor_cores[partition].add(time, clocks)
        self._draw(warp.sm, f"tensor core {partition}", begin, begin + clocks, kind, text, instruction)

    def _draw(
        self, sm: _Sm, unit: str, start: float, end: float, kind: str, text: str, instruction: Instruction
    ) -> None:
        track = sm.prefix + unit
        self._groups[track] = sm.group
        self._tracks[track].append(TraceSpan(track, start, end, kind, text, _line(instruction), 1))

    def _access(self, warp: _Warp, note: Note, cost: costs.Cost, time: float, start: float) -> tuple[float, float]:
        """A load or store, or a shuffle."""
        count, sm = len(note.warps), warp.sm
        wavefronts = sum(note.counts[place] for place in _WAVEFRONTS) / count
        sectors = sum(note.counts[place] for place in _SECTORS) / count
        lines = sectors * SECTOR_BYTES / costs.SHARED_BYTES_PER_CLOCK
        clocks = max(1.0, wavefronts, lines)
        time = sm.take("lsu", -1, time, clocks, start)
        ready = time + cost.latency + clocks - 1
        if sectors:
            path = sectors * SECTOR_BYTES / costs.L2_BYTES_PER_CLOCK
            ready = max(ready, sm.take("l2", -1, time, path, start) + path + cost.latency)
        self._write(warp, note, ready)
        return time + 1, clocks

    def _copy(
        self, warp: _Warp, note: Note, instruction: Instruction, time: float, start: float
    ) -> tuple[float, float]:
        """``cp.async`` of 4 to 16 bytes a thread; bulk and tensor copies; their groups."""
        modifiers = instruction.modifiers
        if "bulk" in modifiers:
            return self._bulk(warp, note, instruction, time)
        if "commit_group" in modifiers:
            warp.copy_groups.append(max(warp.copies, default=time))
            warp.copies = []
            return time + 1, 1.0
        count, sm = len(note.warps), warp.sm
        if "mbarrier" in modifiers:
            done = max([*warp.copies, *warp.copy_groups], default=time)
            self._arrive(warp, note, max(done, time))
            return time + 1, 1.0
        wavefronts = sum(note.counts[place] for place in _WAVEFRONTS) / count
        sectors = sum(note.counts[place] for place in _SECTORS) / count
        clocks = max(1.0, wavefronts)
        time = sm.take("lsu", -1, time, clocks, start)
        path = sectors * SECTOR_BYTES / costs.L2_BYTES_PER_CLOCK
        warp.copies.append(sm.take("l2", -1, time, path, start) + path + costs.L2_LATENCY)
        return time + 1, clocks

    def _bulk(self, warp: _Warp, note: Note, instruction: Instruction, time: float) -> tuple[float, float]:
        modifiers = instruction.modifiers
        if "commit_group" in modifiers:
            read, written = max(warp.stores, default=(time, time))
            warp.store_groups.append((read, written))
            warp.stores = []
            return time + 1, 1.0
        for effect in note.effects:
            if isinstance(effect, BulkCopy) and effect.warp == warp.number:
                begin = warp.sm.take("tma", -1, time, costs.TMA_ISSUE, 0.0)
                if effect.phase is None:
                    path = effect.bytes / costs.L2_BYTES_PER_CLOCK
                    read = warp.sm.take("lsu", -1, begin, effect.bytes / costs.SHARED_BYTES_PER_CLOCK, 0.0)
                    read = max(read, warp.sm.take("l2 write", -1, begin, path, 0.0)) + path
                    warp.stores.append((read, read + costs.L2_LATENCY))
                    text = f"{effect.bytes} bytes of {warp.name}"
                    self._draw(warp.sm, "TMA stores", begin, read, "transfer", text, instruction)
                else:
                    self._load(warp, effect, begin, instruction)
        return time + 1, 1.0

    def _load(self, warp: _Warp, effect: BulkCopy, begin: float, instruction: Instruction) -> None:
        assert effect.phase is not None
        cta, place, number = effect.phase
        sm = self._sm_of.get(cta, warp.sm)
        path = effect.bytes / costs.L2_BYTES_PER_CLOCK
        done = sm.take("l2", -1, begin, path, 0.0) + path + costs.TMA_LATENCY
        text = f"{effect.bytes} bytes to mbarrier {place} phase {number}, asked for by {warp.name}"
        self._draw(sm, "TMA loads", begin, done, "transfer", text, instruction)
        self._contribute((warp.launch, *effect.phase), done)

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _synchronize(self, warp: _Warp, note: Note, instruction: Instruction) -> bool:
        """A barrier, an mbarrier, a fence, or a wait; whether the warp goes on at once."""
        opcode, modifiers = instruction.opcode, instruction.modifiers
        warp.time += 1
        if opcode == "cp":
            return self._copies(warp, instruction)
        if opcode == "wgmma":
            return self._products(warp, instruction)
        if opcode == "griddepcontrol":
            return self._dependent(warp, instruction)
        if opcode == "mbarrier":
            waits = [each for each in note.effects if isinstance(each, PhaseWait) and each.warp == warp.number]
            if waits:
                phase = waits[0].phase
                text = f"mbarrier {phase[1]} phase {phase[2]}"
                return self._wait_for((warp.launch, *phase), warp, text, instruction, costs.MBARRIER_WAKE)
            self._arrive(warp, note, warp.time)
            return True
        if opcode == "barrier" and "cluster" in modifiers:
            return self._cluster(warp, instruction)
        meeting = next((each for each in note.effects if isinstance(each, Meeting) and each.warp == warp.number), None)
        return True if meeting is None else self._meet(warp, meeting, instruction)

    def _copies(self, warp: _Warp, instruction: Instruction) -> bool:
        """``wait_group`` and ``wait_all`` of ``cp.async`` and of bulk stores."""
        modifiers, keep = instruction.modifiers, _constant(instruction)
        if "bulk" in modifiers:
            groups = warp.store_groups[: len(warp.store_groups) - keep]
            ends = [read if "read" in modifiers else written for read, written in groups]
            return self._until(warp, max(ends, default=0.0), "a bulk store", instruction, "wait")
        whole = "wait_all" in modifiers
        ends = [*warp.copy_groups, *warp.copies] if whole else warp.copy_groups[: len(warp.copy_groups) - keep]
        return self._until(warp, max(ends, default=0.0), "cp.async", instruction, "wait")

    def _products(self, warp: _Warp, instruction: Instruction) -> bool:
        """``wgmma.commit_group``, ``wait_group`` and ``fence``."""
        if "commit_group" in instruction.modifiers:
            warp.product_groups.append(max(warp.products, default=warp.time))
            warp.products = []
        if "wait_group" not in instruction.modifiers:
            return True
        pending = warp.product_groups[: len(warp.product_groups) - _constant(instruction)]
        return self._until(warp, max(pending, default=0.0), "wgmma", instruction, "wgmma")

    def _until(self, warp: _Warp, done: float, text: str, instruction: Instruction, kind: str) -> bool:
        """Wait for a time that is known; whether it has come."""
        if done <= warp.time:
            return True
        self._wait_span(warp, warp.time, done, text, _line(instruction), kind)
        self._go(warp, done)  # others run first
        return False

    def _dependent(self, warp: _Warp, instruction: Instruction) -> bool:
        if "launch_dependents" in instruction.modifiers:
            self._trigger(warp.launch, warp.cta, warp.time)
            self._start_next(warp.launch)
            return True
        if warp.launch == 0:
            return True
        return self._wait_for((warp.launch - 1, "end"), warp, "the launch before", instruction, costs.L2_LATENCY)

    def _arrive(self, warp: _Warp, note: Note, time: float) -> None:
        for effect in note.effects:
            if isinstance(effect, Arrival) and effect.warp == warp.number:
                remote = costs.REMOTE_LATENCY if effect.phase[0] != warp.cta else 0
                self._contribute((warp.launch, *effect.phase), time + remote)

    def _cluster(self, warp: _Warp, instruction: Instruction) -> bool:
        cluster = warp.cta // self._recording.cluster_ctas
        if "arrive" in instruction.modifiers:
            self._contribute((warp.launch, "cluster", cluster, warp.cluster_arrivals), warp.time)
            warp.cluster_arrivals += 1
            return True
        key = (warp.launch, "cluster", cluster, warp.cluster_arrivals - 1)
        return self._wait_for(key, warp, "cluster barrier", instruction, costs.CLUSTER_BARRIER_LATENCY)

    def _contribute(self, key: Key, time: float) -> None:
        """An arrival, or the bytes of a copy."""
        phase = self._phases[key]
        phase.left -= 1
        phase.done = max(phase.done, time)
        if phase.left == 0:
            for each in phase.waiting:
                self._resume(each, phase.done)
            phase.waiting = []

    def _wait_for(self, key: Key, warp: _Warp, text: str, instruction: Instruction, wake: float) -> bool:
        phase = self._phases.get(key)
        if phase is None or phase.left <= 0:
            done = phase.done if phase is not None else 0.0
            if done <= warp.time:
                warp.time += min(wake, costs.MBARRIER_WAKE)
                return True
            return self._until(warp, done + wake, text, instruction, "wait")
        warp.waiting_since, warp.waiting_for = warp.time, (text, _line(instruction), "wait")
        warp.ready["%wake"] = wake
        phase.waiting.append(warp)
        return False

    def _resume(self, warp: _Warp, done: float) -> None:
        wake = warp.ready.pop("%wake", 0.0)
        time = max(done, warp.waiting_since) + wake
        text, line, kind = warp.waiting_for
        self._wait_span(warp, warp.waiting_since, time, text, line, kind)
        self._go(warp, time)

    def _meet(self, warp: _Warp, meeting: Meeting, instruction: Instruction) -> bool:
        barrier = self._barriers[warp.launch, warp.cta, meeting.number]
        barrier.threads += meeting.threads
        barrier.latest = max(barrier.latest, warp.time)
        if meeting.waits:
            warp.waiting_since = warp.time
            warp.waiting_for = (f"barrier {meeting.number}", _line(instruction), "barrier")
            warp.ready["%wake"] = costs.BARRIER_LATENCY
            barrier.waiting.append(warp)
        self._release_if_complete(warp, meeting.number, meeting.expected)
        return not meeting.waits

    def _release_if_complete(self, warp: _Warp, number: int, expected: int | None) -> None:
        barrier = self._barriers[warp.launch, warp.cta, number]
        everybody = len({each.number for each in barrier.waiting}) >= self._live[warp.launch, warp.cta]
        complete = barrier.threads >= expected if expected is not None else everybody
        if barrier.waiting and complete:
            waiting, latest = barrier.waiting, barrier.latest
            self._barriers[warp.launch, warp.cta, number] = _Barrier()
            for each in waiting:
                self._resume(each, latest)

    # -- what is drawn -------------------------------------------------------------------------------------------------

    def _wait_span(self, warp: _Warp, start: float, end: float, text: str, line: str, kind: str) -> None:
        if end > start:
            warp.spans.append(TraceSpan(warp.name, start, end, kind, f"waits for {text}", line))
            self._clocks_at[warp.position] += end - start

    def _span(
        self, warp: _Warp, start: float, end: float, shares: dict[str, float], first: Instruction | None, executed: int
    ) -> None:
        if end <= start or first is None or not shares:
            return
        kind = max(shares, key=lambda each: shares[each])
        warp.spans.append(TraceSpan(warp.name, start, end, kind, _TEXT.get(kind, kind), _line(first), executed))

    def _timeline(self) -> Timeline:
        warps = [warp for held in self._held for warp in held]
        stuck = [warp for warp in warps if warp.cursor < len(warp.notes)]
        assert not stuck, f"{stuck[0].name} waits for {stuck[0].waiting_for}"
        found = Timeline(clock_mhz=self._clock_mhz)
        for warp in warps:
            found.tracks.append(warp.name)
            found.groups[warp.name] = self._groups[warp.name]
            found.spans += merged(sorted(warp.spans, key=lambda each: each.start))
        for name in sorted(self._tracks):
            found.tracks.append(name)
            found.groups[name] = self._groups[name]
            found.spans += merged(sorted(self._tracks[name], key=lambda each: each.start))
        self._add_phases(found)
        found.clocks_at = dict(self._clocks_at)
        found.spans.sort(key=lambda each: each.start)
        found.clocks = max((span.end for span in found.spans), default=0.0)
        for sm in self._sms:
            for unit, clocks in sm.busy.items():
                found.busy[unit] = max(found.busy.get(unit, 0.0), clocks)
        return found

    def _add_phases(self, found: Timeline) -> None:
        """A track for each mbarrier: its phases, each from the end of the one before, or the start of its CTA, to its
        own."""
        by_barrier: dict[tuple[object, ...], dict[int, float]] = defaultdict(dict)
        for key, phase in self._phases.items():
            if len(key) == 4 and isinstance(key[1], int) and phase.left <= 0:
                by_barrier[key[:3]][cast(int, key[3])] = phase.done
        for (launch, cta, place), phases in sorted(by_barrier.items(), key=str):
            several = f"launch {launch}, " if len(self._held) > 1 else ""
            name = f"{several}CTA {cta} mbarrier {place}"
            found.tracks.append(name)
            found.groups[name] = f"{several}mbarriers of CTA {cta}"
            before = self._began[cast(int, launch), cast(int, cta)]
            for number, done in sorted(phases.items()):
                found.spans.append(TraceSpan(name, before, done, "phase", f"phase {number}"))
                before = done


_TEXT = {
    "tensor": "mma", "wgmma": "issues wgmma", "math": "arithmetic", "integer": "addresses and control",
    "shared": "shared memory", "global": "global loads", "copy": "issues copies", "store": "stores",
    "branch": "branches",
}  # fmt: skip


def _is_cluster_arrival(instruction: Instruction) -> bool:
    return instruction.opcode == "barrier" and {"cluster", "arrive"} <= set(instruction.modifiers)


def _constant(instruction: Instruction) -> int:
    return int(getattr(instruction.operands[0], "value", 0)) if instruction.operands else 0


def _line(instruction: Instruction) -> str:
    location = instruction.location
    return f"{location.file}:{location.line}" if location is not None and location.file else ""
