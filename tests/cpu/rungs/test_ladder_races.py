"""No rung has a race, or misses a wait, under any schedule of its asynchronous copies."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from covering import ALL, covering, few
from warptile.emulator import DEFAULT_CHECKS
from warptile.errors import DataRace, UninitializedRead
from warptile.ladder import climb, plan_for
from warptile.rungs import RUNGS
from warptile.runtime.execute import EmulatorBackend, compiled_ptx

SIZE = (136, 72, 104)
"""m, n, k: more than one block and more than one step of k, none of them full."""

SYNCHRONISATION = re.compile(r"^\s*(bar\.sync|bar\.warp\.sync|barrier|cp\.async\.wait)", re.MULTILINE)


@pytest.mark.parametrize(
    ("rung", "schedule"),
    few(covering(tuple(RUNGS), ("latest", "earliest", "random:5"), pairs=()), 6),
)
def test_a_rung_is_free_of_races(rung: str, schedule: str) -> None:
    assert "races" in DEFAULT_CHECKS
    [result] = climb([RUNGS[rung]], SIZE, EmulatorBackend(schedule=schedule))
    assert result.failure is None


@pytest.mark.parametrize("rung", few(tuple(RUNGS)[::-1], 2))
def test_a_rung_is_free_of_races_on_unaligned_rows(rung: str) -> None:
    k = 44 if RUNGS[rung].sparse else 45  # 2:4 sparsity comes in groups of four
    [result] = climb([RUNGS[rung]], (67, 35, k), EmulatorBackend())
    assert result.failure is None


@pytest.mark.parametrize(
    ("rung", "k", "spare"),
    few(
        [
            ("simt-shared", 104, 0), ("simt-warptile", 104, 0), ("simt-half2", 104, 0),
            # Nothing is written to the patch behind its last use; with five steps the last reads the patches' stage.
            ("wmma-async", 104, 1), ("mma-double-buffer", 264, 1),
        ],
        2,
    ),
)  # fmt: skip
def test_every_barrier_and_every_wait_of_a_rung_is_needed(rung: str, k: int, spare: int) -> None:
    backend = EmulatorBackend()
    plan = plan_for(RUNGS[rung], (72, 72, k), backend)
    kernel = compiled_ptx(plan)
    ptx = kernel.ptx.decode()
    problem = plan.problem
    bits = {
        "A": problem.m * k * problem.a.dtype.bits,
        "B": problem.n * k * problem.b.dtype.bits,
        "D": problem.m * problem.n * problem.d.dtype.bits,
    }
    buffers = {name: np.zeros(count // 8, np.uint8) for name, count in bits.items()}
    backend.emulate(plan, kernel, buffers, alpha=1, beta=0)
    places = [match.start(1) for match in SYNCHRONISATION.finditer(ptx)]
    assert len(places) >= 2
    for number, start in enumerate(places):
        if not ALL and number % 2 and number < len(places) - 1 - spare:
            continue  # an ordinary run leaves out every second of them, and neither the first nor the last
        mutant = replace(kernel, ptx=f"{ptx[:start]}// {ptx[start:]}".encode())
        if number < len(places) - spare:
            with pytest.raises((DataRace, UninitializedRead)):
                backend.emulate(plan, mutant, buffers, alpha=1, beta=0)
        else:
            assert ptx.startswith("bar.warp.sync", start)
            backend.emulate(plan, mutant, buffers, alpha=1, beta=0)
