"""`setmaxnreg`: reallocation of registers among the warps of a CTA.

A CTA starts with the same number for each of its threads, and its pool is empty. Warps that go down to fewer fill it,
warps that go up to more wait until it holds enough. That changes no value here; it only matters whether the sums work
out, as otherwise the hardware hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import WARP, Active
from warptile.errors import RegisterMisuse
from warptile.ptx.instruction import Immediate, Instruction

if TYPE_CHECKING:
    from warptile.emulator.machine import LaunchGeometry
    from warptile.emulator.memory.accesses import Memory

STEP = 8
"""Registers are given to threads in multiples of this."""

REGISTERS = 65536
"""Of an SM, and the most that a CTA has."""

MOST = 256
"""Registers of a thread."""

WARP_GRANULE = 4
"""Warps of an SM are counted in multiples of this, one for each of its four schedulers."""


def initial_count(directives: Mapping[str, Any], instructions: Iterable[Instruction] = ()) -> int | None:
    """Registers of each thread when the kernel starts, as ptxas allocates them; None if it ignores `setmaxnreg`.

    The limit is `.maxnreg`, or else what an SM has, shared among the warps of `.maxntid` (or `.reqntid`) and the CTAs
    of `.minnctapersm`, whose warps are counted in fours. Up to that limit a kernel gets what its `setmaxnreg.inc` ask
    for at most, so that one of 256 threads that asks for 248 starts with 248, not with 256 (seen with ptxas 13.0).

    Args:
        directives: of the kernel.
        instructions: of the kernel and of the functions that it calls.
    """
    limit = _limit(directives)
    asked = [
        int(each.operands[0].value)
        for each in instructions
        if each.opcode == "setmaxnreg" and "inc" in each.modifiers and isinstance(each.operands[0], Immediate)
    ]
    return limit if limit is None or not asked else min(limit, max(asked))


def _limit(directives: Mapping[str, Any]) -> int | None:
    """The most registers that a thread may start with; None if the directives do not say."""
    most = directives.get("maxnreg")
    if most is not None:
        return -(-int(np.ravel(most)[0]) // STEP) * STEP
    extent = directives.get("maxntid") or directives.get("reqntid")
    ctas = directives.get("minnctapersm")
    if extent is None or ctas is None:
        return None
    warps = -(-prod(int(n) for n in np.ravel(extent)) // WARP) * max(int(np.ravel(ctas)[0]), 1)
    warps = -(-warps // WARP_GRANULE) * WARP_GRANULE
    return min(MOST, REGISTERS // (warps * WARP) // STEP * STEP)


class RegisterPool:
    """Register counts of the warps of a wave, and the warps that wait for more.

    Attributes:
        wake: what to do with lanes that go on: the position behind their instruction, and the lanes.
    """

    def __init__(self, memory: Memory, geometry: LaunchGeometry, initial: int | None) -> None:
        lanes, lanes_per_cta = geometry.lanes, geometry.lanes_per_cta
        self._memory = memory
        self._warps = -(-geometry.threads // WARP)
        self._warps_per_cta = lanes_per_cta // WARP
        self.initial = initial
        self._count: NDArray[np.int64] = np.full(lanes // WARP, initial or 0, dtype=np.int64)
        self._free: NDArray[np.int64] = np.zeros(lanes // lanes_per_cta, dtype=np.int64)
        self._waiting: dict[int, list[tuple[Resize, int, int]]] = {}  # by CTA
        self.wake: Callable[[int, Active], None] = lambda position, active: None

    def new_wave(self) -> None:
        """New CTAs, with an empty pool each."""
        self._count.fill(self.initial or 0)
        self._free.fill(0)
        self._waiting.clear()

    def resize(self, change: Resize, warp: int, position: int) -> bool:
        """Whether a warp has the number it asks for; if not, it waits."""
        wanted, held = change.count, int(self._count[warp])
        if wanted < held if change.more else wanted > held:
            raise RegisterMisuse(
                f"{change.instruction.text}: {self._memory.thread(warp * WARP)} and its warp have {held} "
                f"registers each: that is {'more' if change.more else 'fewer'} than {wanted}",
                kernel=self._memory.kernel,
                location=change.instruction.location,
            )
        cta = warp // self._warps_per_cta
        needed = (wanted - held) * WARP
        if needed > self._free[cta]:
            self._waiting.setdefault(cta, []).append((change, warp, position))
            return False
        self._free[cta] -= needed
        self._count[warp] = wanted
        if needed < 0:
            for other, number, place in self._waiting.pop(cta, ()):
                if self.resize(other, number, place):
                    self.wake(place + 1, Active.of(np.arange(number * WARP, (number + 1) * WARP)))
        return True

    def stuck(self) -> list[tuple[int, NDArray[np.intp], str]]:
        """Who waits: position, lanes and for what."""
        lines = []
        for change, warp, position in chain.from_iterable(self._waiting.values()):
            cta = warp // self._warps_per_cta
            held, free = int(self._count[warp]), int(self._free[cta])
            why = (
                f"for {(change.count - held) * WARP} registers more than the {held} a thread of its warp, while the "
                f"pool of its CTA holds {free}: the CTA started with {self.initial} a thread, "
                f"{(self.initial or 0) * WARP * self._warps} in all, and only setmaxnreg.dec gives some back"
            )
            lines.append((position, np.arange(warp * WARP, (warp + 1) * WARP), why))
        return lines


@dataclass(frozen=True)
class Resize:
    """One `setmaxnreg`, as the scheduler runs it: up (``more``) or down to ``count`` registers a thread."""

    pool: RegisterPool
    instruction: Instruction
    count: int
    more: bool

    def run(self, active: Active, position: int) -> NDArray[np.bool_]:
        """Which lanes go on; the others wait for registers. Called with whole warps."""
        going = np.ones(active.count, dtype=np.bool_)
        if self.pool.initial is None:
            return going
        for number, warp in enumerate((active.lanes[::WARP] // WARP).tolist()):
            going[number * WARP : (number + 1) * WARP] = self.pool.resize(self, warp, position)
        return going
