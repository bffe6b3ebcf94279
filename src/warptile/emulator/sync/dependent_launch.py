"""Programmatic dependent launch: threads that access operands before `griddepcontrol.wait`.

A launch that may overlap the one before (`LaunchSpec.overlaps_previous`) finds operands that are still being written,
or read, until `griddepcontrol.wait`. Every thread has to execute it before it accesses an operand; that another thread
has, and a barrier, would order some accesses as well and is not looked for. Every thread has to execute it before its
end, too: else this launch could be over before the one before, and the next one, which waits for this one alone, would
not know.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.findings import Findings
from warptile.emulator.lanes import Active, Unwritten
from warptile.emulator.memory.spaces import GlobalSpace, Offsets
from warptile.errors import DataRace
from warptile.ptx.instruction import Instruction


class PreviousLaunch:
    """Tracks the threads of a wave that have not executed `griddepcontrol.wait`.

    Args:
        lanes: of a full wave.
        operands: names of what other launches may use.
        kernel: its name.
        thread: names the thread in a lane.
        findings: where they are reported.
    """

    def __init__(
        self, lanes: int, operands: tuple[str, ...], kernel: str, thread: Callable[[int], str], findings: Findings
    ) -> None:
        self._findings = findings
        self._early = Unwritten(lanes)
        self._operands = frozenset(operands)
        self._kernel = kernel
        self._thread = thread

    def start_wave(self, live: NDArray[np.bool_]) -> None:
        """New threads, which have not waited."""
        self._early.lanes[:] = live
        self._early.some = True

    def waited(self, active: Active) -> None:
        """`griddepcontrol.wait`."""
        self._early.set(active, None)

    def touch(self, instruction: Instruction, active: Active, space: GlobalSpace, offsets: Offsets) -> None:
        """An access to global memory by each active lane: report it if it is to an operand and comes too early."""
        early = self._early.among(active)
        if early is None or not offsets.size:
            return
        for offset in (int(offsets[early].min()), int(offsets[early].max())):
            home = space.around(offset)
            if home is not None and home.name in self._operands:
                error = DataRace(
                    f"{instruction.text}: {self._thread(int(active.lanes[np.argmax(early)]))} accesses {home.name} and "
                    "has not executed griddepcontrol.wait: the launch before this one, which it may overlap, may "
                    "still use it",
                    kernel=self._kernel,
                    location=instruction.location,
                    kind="launch-access",
                    fix="execute griddepcontrol.wait (cudaGridDependencySynchronize()) before the access",
                )
                self._findings.report(error)

    def end_wave(self) -> None:
        """All threads have ended."""
        if self._early.lanes.any():
            error = DataRace(
                f"{self._thread(int(np.argmax(self._early.lanes)))} ends and has not executed griddepcontrol.wait: "
                "this launch may be over before the one before it, and the next one waits for this one alone",
                kernel=self._kernel,
                kind="launch-end",
                fix="execute griddepcontrol.wait (cudaGridDependencySynchronize()) in every thread",
            )
            self._findings.report(error)
