"""Compile a few lines of CUDA C++ and run them on the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from warptile.codegen.nvrtc import compile_ptx
from warptile.codegen.translation_unit import Source
from warptile.emulator import DEFAULT_CHECKS, EmulationReport, emulate
from warptile.launch.access import Access, Rows
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse
from warptile.ptx.instruction import PtxModule


@lru_cache(maxsize=64)
def compiled(text: str, name: str, arch: str) -> tuple[str, PtxModule]:
    """Entry and module of one kernel. ptxas does not run: its result is not emulated."""
    kernel = compile_ptx(Source(text, name), arch)
    return kernel.entry, parse(kernel.ptx)


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
    collect: bool = False,
) -> EmulationReport:
    """Run kernel ``name`` of ``text``. Array arguments become buffers "0", "1", ... by position.

    ``outputs`` maps positions that may be written to whether all of them must be.
    """
    outputs = outputs if outputs is not None else {0: True}
    entry, module = compiled(text, name, arch)
    operands = {str(i): a for i, a in enumerate(arguments) if isinstance(a, np.ndarray)}
    spec = LaunchSpec(
        entry,
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
    return emulate(
        module, spec, operands, accesses=accesses, arch=arch, schedule=schedule, checks=checks, collect=collect
    )
