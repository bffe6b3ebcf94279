"""Compile a few lines of CUDA C++ and run them on the emulator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from warptile.compile import compile_source
from warptile.emulator import DEFAULT_CHECKS, Report, emulate
from warptile.launch import Access, LaunchSpec, Pointer, Rows, Scalar
from warptile.ptx import parse
from warptile.source import Source


def run_cuda(
    text: str,
    name: str,
    arguments: list[np.ndarray | Scalar | None],
    *,
    grid: int | tuple[int, int, int] = 1,
    block: int = 32,
    cluster: tuple[int, int, int] = (1, 1, 1),
    shared: int = 0,
    outputs: Mapping[int, bool] | None = None,
    schedule: str = "latest",
    arch: str = "sm_90a",
    checks: frozenset[str] = DEFAULT_CHECKS,
    overlaps_previous: bool = False,
) -> Report:
    """Run kernel ``name`` of ``text``. Array arguments become buffers "0", "1", ... by position.

    ``outputs`` maps positions that may be written to whether all of them must be.
    """
    outputs = outputs if outputs is not None else {0: True}
    kernel = compile_source(Source(text, name, may_spill=True), arch, cache=None)
    operands = {str(i): a for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}
    spec = LaunchSpec(
        kernel.entry,
        (grid, 1, 1) if isinstance(grid, int) else grid,
        (block, 1, 1),
        tuple(
            a if isinstance(a, Scalar) else Pointer(str(i) if a is not None else None) for i, a in enumerate(arguments)
        ),
        cluster=cluster,
        dynamic_shared_bytes=shared,
        overlaps_previous=overlaps_previous,
    )
    accesses = {}
    for position, complete in outputs.items():
        array = operands[str(position)]
        rows = Rows(1, array.size, array.itemsize, array.nbytes) if complete else None
        accesses[str(position)] = Access(writes=True, complete=rows)
    return emulate(parse(kernel.ptx), spec, operands, accesses=accesses, arch=arch, schedule=schedule, checks=checks)
