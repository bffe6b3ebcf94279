"""The scheduler: chooses the lanes that run next and keeps those that wait.

All lanes at the same position run together. The lowest position goes first, which reconverges divergent lanes.
Independent thread scheduling is kept: a group that spins is set aside when another has waited `PATIENCE` steps, and a
warp-wide instruction waits for its lanes instead of assuming them. Under ``random:SEED`` this holds for the warps whose
turn it is (`random_turns`); the others are set aside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from warptile.emulator import program as p
from warptile.emulator.builders import Blocking
from warptile.emulator.checks.races import FULL_MASK
from warptile.emulator.compiled_steps import step_records
from warptile.emulator.compiled_steps.compiled_program import CompiledProgram
from warptile.emulator.lanes import WARP, Active
from warptile.emulator.machine import Machine
from warptile.emulator.program import ProgramLayout, ProgramStep
from warptile.emulator.random_turns import RandomTurns
from warptile.emulator.recursion import Activations
from warptile.emulator.steps import CallPlan
from warptile.emulator.sync.cluster_barriers import ClusterBarriers
from warptile.emulator.sync.cta_barriers import CtaBarriers
from warptile.errors import Deadlock, DivergentCollective, IllegalAddress

PATIENCE = 4096
"""Steps that a ready group waits at most while another one loops."""

SPIN_PATIENCE = 32
"""The same, while that one reads flags or locks that nobody changes."""

QUANTUM = 1024
"""Steps that such a group may then run before the lowest position goes first again."""

STREAM_STEPS = 20_000
"""Steps without an effect after which something happens in a stream beside the launch, if there is one."""

POLLED_STREAM_STEPS = 2_000
"""The same, while flags are read that nobody changes: the kernel waits for the stream."""

SPIN_STEPS = 3_000_000
"""Steps without any store, barrier or exit after which a program that reads flags is taken to spin forever, and one
that only computes is looked at."""

LOOK_STEPS = 20_000
"""Steps between two looks at whether a program that only computes is where it has been before."""

LONGEST_WAIT = 1 << 12
"""Steps that others may loop until what is waited for at an mbarrier comes, or the waits return false."""

NOWHERE = 1 << 62
"""A position behind every program."""

NOT_CALLED = -1
"""Where a lane returns to from a function that it is not in."""

Lanes = NDArray[np.intp]


class Scheduler:
    """Runs one wave of CTAs to its end.

    Args:
        machine: what runs.
        steps: the program.
        layout: where its functions and their variables are.
        compiled: gives the machine code of some steps, once that pays.
    """

    def __init__(
        self,
        machine: Machine,
        steps: list[ProgramStep],
        layout: ProgramLayout,
        compiled: Callable[[], CompiledProgram | None] = lambda: None,
    ) -> None:
        self.machine = machine
        self._find_compiled = compiled
        self.steps = steps
        self.entry = layout.routines[layout.entry.name].start
        self._ready: dict[int, list[Active]] = {}
        self._since: dict[int, int] = {}
        self._lowest = NOWHERE
        self._turns = machine.turns
        self._aside: list[tuple[int, Active]] = []
        self._until = 0
        self._next_look = self._looks = 0
        self._seen = b""
        self._collectives: dict[int, Lanes] = {}
        self._returns: dict[int, NDArray[np.int64]] = {}
        self._layout = layout
        self._activations: dict[int, Activations] = {}
        self._moved = np.zeros(machine.geometry.lanes, dtype=np.int64)
        for shift in layout.shifts.values():
            shift.fill(0)
        self._warps = machine.count.table[:, 0]
        self._races = machine.memory.races
        machine.mbarriers.wake = machine.pool.wake = self._put
        self._barriers = CtaBarriers(machine, steps, self._put)
        self._clusters = ClusterBarriers(machine, steps, self._put)

    def run(self) -> None:
        """Execute until every lane has exited."""
        self._put(self.entry, Active.of(np.flatnonzero(self.machine.live)))
        while self._ready or self._aside:
            position, active, self._until = self._take()
            self._execute(position, active)
            if self._ready or self._aside:
                continue
            if self._collectives:
                self._retry_collectives()
            while not (self._ready or self._aside) and self.machine.mbarriers.parked:
                if not self.machine.mbarriers.starve(self.machine.last_effect):
                    break
        self._report_stuck()

    # -- choosing ----------------------------------------------------------------------------------------------

    def _put(self, position: int, active: Active) -> None:
        if self._turns is not None:
            active, others = self._turns.split(active)
            if others is not None:
                self._aside.append((position, others))
            self._until = 0  # whoever runs is no longer alone in its turn
        if active.count:
            self._ready.setdefault(position, []).append(active)
            self._since.setdefault(position, self.machine.steps)
            self._lowest = min(self._lowest, position)

    def _take(self) -> tuple[int, Active, int]:
        """The next group: its position, its lanes, and the step count until which it may pass others."""
        if self._turns is not None and (not self._ready or self.machine.steps >= self._turns.ends):
            self._next_turn(self._turns)
        position = min(self._ready)
        until = 0
        if len(self._ready) > 1:
            oldest = min(self._since, key=self._since.__getitem__)
            if self.machine.steps - self._since[oldest] > self._patience():
                position, until = oldest, self.machine.steps + QUANTUM
        groups = self._ready.pop(position)
        del self._since[position]
        self._lowest = min(self._ready, default=NOWHERE)
        if self._turns is not None and not self._ready:
            self._lowest, until = -1, self._turns.ends  # alone in its turn, a group runs as long as that lasts
        return position, groups[0] if len(groups) == 1 else _union(groups), until

    def _next_turn(self, turns: RandomTurns) -> None:
        """Others run for a while."""
        waiting = [*self._aside, *((position, each) for position, groups in self._ready.items() for each in groups)]
        self._aside = []
        self._ready.clear()
        self._since.clear()
        turns.next([active for _, active in waiting], self.machine.steps)
        for position, active in waiting:
            self._put(position, active)

    def _look_for_spinning(self, step: ProgramStep, active: Active) -> None:
        """Threads spin if they read flags that nobody changes, or come back to a state that they have been in."""
        machine = self.machine
        if machine.last_poll > machine.last_effect:
            raise Deadlock(
                f"{machine.steps - machine.last_effect} steps without a store, a barrier or an exit: threads spin for "
                "something nobody will do",
                **self._where(step),
            )
        self._next_look = machine.steps + LOOK_STEPS
        state = self._state(step, active)
        if state == self._seen:
            raise Deadlock(
                "threads loop forever: the loop has come back to the values that all registers had before, and writes "
                "nothing",
                fix="change in the loop what its condition depends on; a plain load of what others write may be moved "
                "out of it: use an atomic",
                **self._where(step),
            )
        self._looks += 1
        if self._looks & (self._looks - 1) == 0:  # Brent's algorithm: a period of any length is found
            self._seen = state

    def _state(self, step: ProgramStep, active: Active) -> bytes:
        """A digest of where all threads are and of what their registers hold."""
        digest = hashlib.blake2b(repr((id(step), sorted(self._ready), sorted(self._collectives))).encode())
        groups = [group for position in sorted(self._ready) for group in self._ready[position]]
        arrays = [each.lanes for each in (active, *groups, *(group for _, group in self._aside))]
        arrays += self._returns.values()
        for routine in self._layout.routines.values():
            arrays += routine.registers.kept()
        for array in arrays:
            digest.update(np.ascontiguousarray(array).data)
        return digest.digest()

    def _must_yield(self, step: ProgramStep, active: Active) -> bool:
        """After a backward branch: has somebody waited too long, or does everybody only spin?"""
        machine, streams = self.machine, self.machine.memory.streams
        if streams is not None and machine.steps - machine.last_effect > self._stream_steps():
            if streams.advance():
                machine.last_effect = machine.steps
            elif machine.steps - machine.last_effect > 2 * self._stream_steps():
                raise Deadlock(
                    f"threads spin for something that no stream will do: {streams.waiting}", **self._where(step)
                )
        if machine.steps - machine.last_effect > SPIN_STEPS and machine.steps >= self._next_look:
            self._look_for_spinning(step, active)
        if machine.mbarriers.parked and machine.steps - machine.mbarriers.parked_since > LONGEST_WAIT:
            machine.mbarriers.starve(machine.last_effect)
            machine.mbarriers.parked_since = machine.steps
        return bool(self._since) and machine.steps - min(self._since.values()) > self._patience()

    def _patience(self) -> int:
        """Steps that a ready group waits at most while another one loops."""
        return SPIN_PATIENCE if self.machine.last_poll > self.machine.last_effect else PATIENCE

    def _stream_steps(self) -> int:
        """Steps without an effect after which a stream goes on."""
        return POLLED_STREAM_STEPS if self.machine.last_poll > self.machine.last_effect else STREAM_STEPS

    def _patience_ends(self) -> int:
        """The count of steps up to which `_must_yield` does nothing."""
        machine = self.machine
        latest = machine.last_effect + (SPIN_STEPS if machine.memory.streams is None else self._stream_steps())
        latest = max(latest, self._next_look) if machine.memory.streams is None else latest
        if machine.mbarriers.parked:
            latest = min(latest, machine.mbarriers.parked_since + LONGEST_WAIT)
        return min(latest, min(self._since.values()) + self._patience()) if self._since else latest

    # -- executing ---------------------------------------------------------------------------------------------

    def _execute(self, position: int, active: Active) -> None:
        """Run ``active`` from ``position`` until it splits, waits, ends, or meets another ready group."""
        machine, steps, warps = self.machine, self.steps, self._warps
        compiled = self._find_compiled()
        while True:
            step = steps[position]
            if compiled is not None and compiled.known[position]:
                position, why = compiled.run(
                    position, active, self._lowest, self._until, self._patience_ends(), waiting=bool(self._collectives)
                )
                if why == step_records.MET:
                    self._put(position, active)
                    return
                step = steps[position]
            machine.steps += 1
            warps[position] += active.warp_count
            kind = step.kind
            if kind == p.PLAIN:
                step.run(active)  # type: ignore[misc]
                position += 1
            elif kind == p.BRANCH:
                if step.guard is None:
                    target = step.target
                else:
                    taken = cast("NDArray[np.bool_]", step.guard(active))
                    count = int(np.count_nonzero(taken))
                    if 0 < count < active.count:
                        self._put(step.target, active.where(taken))
                        self._put(position + 1, active.where(~taken))
                        return
                    target = step.target if count else position + 1
                if target <= position:
                    if self._must_yield(step, active):
                        self._put(target, active)
                        return
                    compiled = compiled or self._find_compiled()
                position = target
            else:
                going = active
                if step.guard is not None:
                    mask = cast("NDArray[np.bool_]", step.guard(active))
                    if not mask.all():
                        self._put(position + 1, active.where(~mask))
                        going = active.where(mask)
                        if not going.count:
                            return
                following = self._special(kind, step, position, going)
                if following is None:
                    return
                position, active = following
            if position >= self._lowest and machine.steps >= self._until:
                self._put(position, active)
                return

    def _special(self, kind: int, step: ProgramStep, position: int, active: Active) -> tuple[int, Active] | None:
        """Everything that is neither plain nor a direct branch; where to go on with whom, or None."""
        if kind == p.WARP_COLLECTIVE:
            return self._warp_collective(step, position, active)
        if kind == p.MASK_COLLECTIVE:
            return self._mask_collective(step, position, active)
        if kind == p.BARRIER:
            return self._barriers.execute(step, position, active)
        if kind == p.MBARRIER_WAIT:
            return self._run_collected(step, position, active)
        if kind == p.CLUSTER_BARRIER:
            machine = self.machine
            machine.count.add(cast(Any, step.instruction), "barriers", active.warp_count)
            machine.last_effect = machine.steps
            return self._clusters.execute(step, position, active)
        if kind == p.EXIT:
            self._exit(active)
            return None
        if kind == p.CALL:
            return self._call(step, position, active)
        if kind == p.RETURN:
            return self._return(position, active)
        assert kind == p.INDEXED_BRANCH
        index, targets = cast(Any, step.detail)
        chosen = np.broadcast_to(index(active), active.count)
        if int(chosen.max()) >= len(targets):
            raise IllegalAddress(
                f"{step.instruction}: index {int(chosen.max())} of {len(targets)} targets",
                fix="compare the index with the number of targets",
                **self._where(step),
            )
        return self._scatter(active, targets[chosen])

    def _scatter(self, active: Active, positions: NDArray[np.int64]) -> tuple[int, Active] | None:
        first = int(positions[0])
        if (positions == first).all():
            return first, active
        for position in np.unique(positions):
            self._put(int(position), active.where(positions == position))
        return None

    def _call(self, step: ProgramStep, position: int, active: Active) -> tuple[int, Active] | None:
        plan = cast(CallPlan, step.detail)
        if plan.address is None:
            self._enter(plan, step.target, position, active)
            return step.target, active
        addresses = np.broadcast_to(plan.address(active), active.count)
        targets = np.array([plan.starts.get(int(a), -1) for a in addresses], dtype=np.int64)
        if (targets < 0).any():
            raise IllegalAddress(
                f"{step.instruction}: the pointer is no function's address",
                fix="take the function's address in device code, or copy it from a __device__ variable",
                **self._where(step),
            )
        for target in np.unique(targets).tolist():
            self._enter(plan, target, position, active.where(targets == target))
        return self._scatter(active, targets)

    def _enter(self, plan: CallPlan, target: int, position: int, active: Active) -> None:
        table = self._returns.get(target)
        if table is None:
            table = self._returns[target] = np.full(self.machine.geometry.lanes, NOT_CALLED, dtype=np.int64)
        running = table[active.index] != NOT_CALLED
        if running.any():
            again = active.where(running)
            self._activations_of(target).enter(again, table[again.index])
        for move in plan.before[target]:
            move(active)
        if target in self._layout.stack_users and self.machine.stack is not None:
            self.machine.stack.enter(target, active)
        table[active.index] = position

    def _activations_of(self, start: int) -> Activations:
        found = self._activations.get(start)
        if found is None:
            routine = next(each for each in self._layout.routines.values() if each.start == start)
            found = Activations(routine, self._layout, self.machine.memory, self._moved)
            self._activations[start] = found
        return found

    def _return(self, position: int, active: Active) -> tuple[int, Active] | None:
        start = position_of_routine(self.steps, position)
        calls = self._returns[start][active.index].copy()
        activations = self._activations.get(start)
        if start in self._layout.stack_users and self.machine.stack is not None:
            self.machine.stack.leave(start, active)
        for call in np.unique(calls):
            plan = cast(CallPlan, self.steps[int(call)].detail)
            part = active.where(calls == call)
            deliver = partial(_deliver, plan.after[start])
            if activations is None:
                deliver(part)
                self._returns[start][part.index] = NOT_CALLED
            else:
                self._returns[start][part.index] = activations.leave(part, deliver)
        return self._scatter(active, calls + 1)

    def _exit(self, active: Active) -> None:
        machine = self.machine
        machine.live[active.index] = False
        machine.last_effect = machine.steps
        self._clusters.exited(active.lanes)
        if self._races is not None:
            self._races.exited(active.lanes)
        self._barriers.exited(active.lanes)

    # -- warp collectives ----------------------------------------------------------------------------------------

    def _warp_collective(self, step: ProgramStep, position: int, active: Active) -> tuple[int, Active] | None:
        """All 32 lanes of a warp, together: whole warps run, the lanes of the others wait here for their siblings."""
        parked = self._collectives.pop(position, None)
        if parked is None and active.whole_warps:
            return self._run_collected(step, position, active)
        lanes = active.lanes if parked is None else np.union1d(parked, active.lanes)
        present = np.bincount(lanes // WARP, minlength=self.machine.geometry.lanes // WARP)
        whole = present[lanes // WARP] == WARP
        if not whole.all():
            self._collectives[position] = lanes[~whole]
        if not whole.any():
            return None
        return self._run_collected(step, position, Active.of(lanes[whole]))

    def _run_collected(self, step: ProgramStep, position: int, active: Active) -> tuple[int, Active] | None:
        """Run an instruction for lanes that may all execute it now; some of them may have to wait for something."""
        if step.detail is None:
            step.run(active)  # type: ignore[misc]
            return position + 1, active
        going = cast(Blocking, step.detail).run(active, position)
        return (position + 1, active.where(going)) if going.any() else None

    def _mask_collective(self, step: ProgramStep, position: int, active: Active) -> tuple[int, Active] | None:
        """Each lane waits until every living lane that its mask names stands here too."""
        parked = self._collectives.pop(position, None)
        if parked is None and active.whole_warps and (cast(Any, step.detail)(active) == FULL_MASK).all():
            step.run(active)  # type: ignore[misc]
            return position + 1, active
        merged = active if parked is None else Active.of(np.union1d(parked, active.lanes))
        lanes = merged.lanes
        masks = np.broadcast_to(cast(Any, step.detail)(merged), merged.count).astype(np.uint64)
        bits = np.uint64(1) << (lanes % WARP).astype(np.uint64)
        if ((masks & bits) == 0).any():
            thread = self.machine.memory.thread(lanes[np.argmax((masks & bits) == 0)])
            error = DivergentCollective(
                f"{step.instruction}: {thread} executes it but is not in its own member mask",
                fix="give it a mask with every lane that executes it",
                **self._where(step),
            )
            self.machine.memory.findings.report(error)
            masks |= bits
        warps = self.machine.geometry.lanes // WARP
        present = np.zeros(warps, dtype=np.uint64)
        np.bitwise_or.at(present, lanes // WARP, bits)
        live = self._live_masks()
        absent = masks & live[lanes // WARP] & ~present[lanes // WARP]
        here = absent == 0
        # A lane may not go on while one that it was to meet still waits for somebody else.
        held = np.zeros(warps, dtype=np.uint64)
        while True:
            held[:] = 0
            np.bitwise_or.at(held, lanes[~here] // WARP, bits[~here])
            more = here & ((masks & held[lanes // WARP]) != 0)
            if not more.any():
                break
            here &= ~more
        if not here.all():
            self._collectives[position] = lanes[~here]
        if not here.any():
            return None
        ready = merged if here.all() else Active.of(lanes[here])
        step.run(ready)  # type: ignore[misc]
        return position + 1, ready

    def _live_masks(self) -> NDArray[np.uint64]:
        weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
        masks: NDArray[np.uint64] = (self.machine.live.reshape(-1, WARP) * weights).sum(axis=1, dtype=np.uint64)
        return masks

    def _retry_collectives(self) -> None:
        """Nobody else can run: lanes that waited for siblings which have exited since may go on."""
        for position in list(self._collectives):
            if self.steps[position].kind == p.MASK_COLLECTIVE:
                lanes = self._collectives.pop(position)
                following = self._mask_collective(self.steps[position], position, Active.of(lanes))
                if following is not None:
                    self._put(*following)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _report_stuck(self) -> None:
        """Nothing is ready: fine if nobody waits, else say who waits for what."""
        stuck = [(parked.position, parked.lanes, why) for parked, why in self.machine.mbarriers.stuck()]
        stuck += self._clusters.stuck() + self.machine.pool.stuck()
        at_barriers = self._barriers.stuck()
        if not self._collectives and not at_barriers and not stuck:
            return
        lines = []
        for position, lanes in self._collectives.items():
            lines.append(f"{self._some(lanes)} at {self._place(position)}, waiting for other lanes of their warps")
        for position, lanes, why in [*at_barriers, *stuck]:
            lines.append(f"{self._some(lanes)} at {self._place(position)}, {why}")
        positions = [*(position for position, _, _ in stuck), *self._collectives]
        positions += (position for position, _, _ in at_barriers)
        step = self.steps[positions[0]]
        if self._collectives and not stuck:
            raise DivergentCollective(
                "not all lanes of a warp execute it together: " + "; ".join(lines), **self._where(step)
            )
        raise Deadlock("no thread can go on: " + "; ".join(lines), **self._where(step))

    def _some(self, lanes: Lanes) -> str:
        return f"{len(lanes)} threads, first {self.machine.memory.thread(lanes[0])},"

    def _place(self, position: int) -> str:
        step = self.steps[position]
        return f"{step.instruction} [{step.location}]"

    def _where(self, step: ProgramStep) -> dict[str, Any]:
        return {"kernel": self.machine.kernel, "location": step.location}


def _deliver(moves: list[Callable[[Active], None]], active: Active) -> None:
    """Move the results of a call."""
    for move in moves:
        move(active)


def position_of_routine(steps: list[ProgramStep], position: int) -> int:
    """The first position of the routine that a return at ``position`` belongs to."""
    start = position
    while start > 0 and steps[start - 1].instruction is not None:
        start -= 1
    return start


def _union(groups: list[Active]) -> Active:
    lanes = np.concatenate([group.lanes for group in groups])
    lanes.sort(kind="stable")  # which merges runs that are in order
    return Active.of(lanes)
