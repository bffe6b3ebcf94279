"""CTA-wide and named barriers (`bar.sync`, `bar.arrive`, `bar.red`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import WARP, Active
from warptile.emulator.machine import Machine
from warptile.emulator.ops.bar import BarInstruction
from warptile.emulator.program import ProgramStep
from warptile.errors import DivergentCollective, IllegalAddress

Lanes = NDArray[np.intp]


@dataclass
class BarrierWaiters:
    """Lanes of one CTA that wait at a barrier, all at one position of the program."""

    position: int
    lanes: Lanes
    barrier: BarInstruction
    predicate: NDArray[np.bool_] | None


class CtaBarriers:
    """The sixteen barriers of every CTA of a wave, by CTA and number.

    Args:
        machine: whose threads they hold.
        steps: the program, for messages.
        wake: what to do with lanes that go on: the position behind their wait, and the lanes.
    """

    def __init__(self, machine: Machine, steps: list[ProgramStep], wake: Callable[[int, Active], None]) -> None:
        self._machine = machine
        self._steps = steps
        self._wake = wake
        self._races = machine.memory.races
        self._waiting: dict[tuple[int, int], list[BarrierWaiters]] = {}
        self._arrived: dict[tuple[int, int], int] = {}
        self._expected: dict[tuple[int, int], int] = {}

    def execute(self, step: ProgramStep, position: int, active: Active) -> tuple[int, Active] | None:
        """A barrier instruction by some lanes: where to go on with whom, or None."""
        machine = self._machine
        barrier = cast(BarInstruction, step.detail)
        machine.count.add(cast(Any, step.instruction), "barriers", active.warp_count)
        machine.last_effect = machine.steps
        everybody = active.count == int(np.count_nonzero(machine.live))
        if everybody and barrier.mode == "sync" and barrier.threads is None and not self._waiting and not self._arrived:
            if self._races is not None:
                self._races.join_all_ctas()
            return position + 1, active
        identifiers = np.broadcast_to(barrier.identifier(active), active.count)
        if int(identifiers.max()) > 15:
            raise IllegalAddress(
                f"{step.instruction}: barrier {int(identifiers.max())} of 16", fix="barriers are numbered from 0 to 15",
                **self._where(step),
            )  # fmt: skip
        counts = None if barrier.threads is None else np.broadcast_to(barrier.threads(active), active.count)
        predicate = None
        if barrier.predicate is not None:
            predicate = np.broadcast_to(barrier.predicate(active), active.count)
        lanes = active.lanes
        ctas = lanes // machine.geometry.lanes_per_cta
        keys = ctas * 16 + identifiers
        for value in np.unique(keys):
            key = (int(value) // 16, int(value) % 16)
            mine = keys == value
            if counts is not None:
                expected = int(counts[mine][0])
                if expected % WARP or expected == 0:
                    raise DivergentCollective(
                        f"{step.instruction}: {expected} threads is not a multiple of the warp size",
                        **self._where(step),
                    )
                warps = lanes // WARP if int(np.count_nonzero(mine)) + self._present(key) > expected else lanes * 0
                groups = [mine & (warps == warp) for warp in np.unique(warps[mine])]
            else:
                groups, expected = [mine], 0
            for group in groups:  # with more than are expected, warp by warp: the rest is for the next time
                if expected:
                    self._expected[key] = expected
                if barrier.mode == "arrive":
                    self._arrived[key] = self._arrived.get(key, 0) + int(np.count_nonzero(group))
                    if self._races is not None:
                        self._races.arrive(*key, lanes[group])
                else:
                    part = predicate[group] if predicate is not None else None
                    self._waiting.setdefault(key, []).append(BarrierWaiters(position, lanes[group], barrier, part))
                self._release_if_complete(key)
        if barrier.mode == "arrive":
            return position + 1, active
        return None

    def exited(self, lanes: Lanes) -> None:
        """The end of a thread: a barrier of all threads of its CTA may have waited for nobody else."""
        if self._waiting:
            for cta in np.unique(lanes // self._machine.geometry.lanes_per_cta):
                for key in [key for key in self._waiting if key[0] == cta]:
                    self._release_if_complete(key)

    def stuck(self) -> list[tuple[int, Lanes, str]]:
        """Who waits where, and in which barrier."""
        return [(w.position, w.lanes, f"in barrier {key[1]}") for key, some in self._waiting.items() for w in some]

    def _present(self, key: tuple[int, int]) -> int:
        """Threads that have come to a barrier so far."""
        return sum(len(w.lanes) for w in self._waiting.get(key, ())) + self._arrived.get(key, 0)

    def _release_if_complete(self, key: tuple[int, int]) -> None:
        waiting = self._waiting.get(key, [])
        expected = self._expected.get(key)
        if expected is None:
            per_cta = self._machine.geometry.lanes_per_cta
            expected = int(np.count_nonzero(self._machine.live[key[0] * per_cta : (key[0] + 1) * per_cta]))
        if self._present(key) < expected:
            return
        self._check_aligned(waiting)
        self._waiting.pop(key, None)
        self._arrived.pop(key, None)
        self._expected.pop(key, None)
        if self._races is not None:
            self._races.barrier(*key, [w.lanes for w in waiting])
        reduced = [w.predicate for w in waiting if w.predicate is not None]
        for w in waiting:
            active = Active.of(w.lanes)
            if w.barrier.result is not None:
                joined = np.concatenate(reduced)
                value = {"popc": np.count_nonzero, "and": np.all, "or": np.any}[w.barrier.mode](joined)  # type: ignore[operator]
                w.barrier.result(active, np.array([value]))
            self._wake(w.position + 1, active)

    def _check_aligned(self, waiting: list[BarrierWaiters]) -> None:
        """Threads of one warp must have come through the same aligned barrier instruction."""
        if len({w.position for w in waiting}) < 2:
            return
        seen: dict[int, BarrierWaiters] = {}
        for w in waiting:
            for warp in np.unique(w.lanes // WARP):
                other = seen.setdefault(int(warp), w)
                if other.position != w.position and (other.barrier.aligned or w.barrier.aligned):
                    raise DivergentCollective(
                        f"warp {int(warp)} met one barrier from two places: {self._at(other.position)} and "
                        f"{self._at(w.position)}",
                        **self._where(self._steps[w.position]),
                    )

    def _at(self, position: int) -> str:
        step = self._steps[position]
        return f"{step.instruction} [{step.location}]"

    def _where(self, step: ProgramStep) -> dict[str, Any]:
        return {"kernel": self._machine.kernel, "location": step.location}
