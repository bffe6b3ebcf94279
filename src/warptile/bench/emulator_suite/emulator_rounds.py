"""Times the emulator on its kernels, interpreted and compiled, with all default checks and with none."""

from __future__ import annotations

import time
from itertools import product

from warptile.bench.emulator_suite.emulated_kernels import EmulatedKernel, emulated_kernel
from warptile.bench.protocol.emulator_rates import COMPILED, INTERPRETED, EmulatorTime, EmulatorTimes
from warptile.emulator import DEFAULT_CHECKS
from warptile.emulator.compiled_steps.step_library import library

ROUNDS, BRIEF_ROUNDS = 5, 2

_WAYS = tuple(product((INTERPRETED, COMPILED), (True, False)))


def measure(name: str, *, rounds: int = ROUNDS) -> EmulatorTimes:
    """The times of one kernel of the suite, in interleaved rounds whose order alternates.

    Every way runs once before. Machine code that every launch shares is made before that, so that it is not timed.

    Args:
        name: of the kernel.
        rounds: how many.
    """
    library(wait=True)
    kernel = emulated_kernel(name)
    instructions = 0
    found: dict[tuple[str, bool], list[float]] = {way: [] for way in _WAYS}
    for way in _WAYS:
        instructions = _timed(kernel, *way)[1]
    for number in range(rounds):
        for each in _WAYS if number % 2 == 0 else reversed(_WAYS):
            found[each].append(_timed(kernel, *each)[0])
    times = [EmulatorTime(way=way, checks=checks, rounds_s=tuple(found[way, checks])) for way, checks in _WAYS]
    return EmulatorTimes(kernel=name, thread_instructions=instructions, times=tuple(times))


def _timed(kernel: EmulatedKernel, way: str, checks: bool) -> tuple[float, int]:
    """Processor seconds of a launch, and the thread instructions that it executes."""
    start = time.process_time()
    report = kernel.run(DEFAULT_CHECKS if checks else frozenset(), interpreted=way == INTERPRETED)
    return time.process_time() - start, 32 * int(report.counters["warp_instructions"])
