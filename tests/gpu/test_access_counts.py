"""Nsight Compute reads what tests/data/access_counts_h200.json holds, for every single-warp access pattern.

Run as a program, this file launches each pattern once; the test runs it under ncu.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from access_patterns import PATTERNS

HERE = Path(__file__).parent
RECORDED = HERE.parent / "data" / "access_counts_h200.json"
LOADS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
WAVEFRONTS = "memory_l1_wavefronts_shared"
IDEAL = "memory_l1_wavefronts_shared_ideal"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"


def launch_all() -> None:
    """Launch each pattern once, in order."""
    from warptile.codegen.nvrtc import compile_source
    from warptile.codegen.translation_unit import Source
    from warptile.gpu import driver
    from warptile.gpu.loader import load
    from warptile.launch.params import Pointer
    from warptile.launch.spec import LaunchSpec

    text = (HERE / "access_patterns.cu").read_text()
    matrix = driver.Allocation(1 << 20)
    kernels = {}
    for pattern in PATTERNS:
        if pattern.kernel not in kernels:
            kernels[pattern.kernel] = load(compile_source(Source(text, pattern.kernel), "sm_90a", cache=None))
        kernel = kernels[pattern.kernel]
        offsets = [driver.Allocation.from_array(a.astype(np.int32)) for a in (pattern.source, pattern.target)]
        pointers = {"global": matrix.address, "source": offsets[0].address, "target": offsets[1].address}
        arguments = tuple(Pointer(name) for name in pointers)
        spec = LaunchSpec(kernel.kernel.entry, (1, 1, 1), (32, 1, 1), arguments, dynamic_shared_bytes=16384)
        kernel.launch(spec, pointers)
        driver.synchronize()


@pytest.mark.gpu
def test_nsight_compute_reads_the_recorded_counts() -> None:
    from warptile.bench.profiling.ncu import find_ncu
    from warptile.errors import WarptileError

    try:
        ncu = find_ncu()
    except WarptileError as error:
        pytest.skip(str(error))
    metrics = ",".join((LOADS, WAVEFRONTS, IDEAL, SECTORS))
    command = [
        ncu,
        "--clock-control",
        "none",
        "-k",
        "regex:cp_async|ld|st",
        "--csv",
        "--page",
        "raw",
        "--metrics",
        metrics,
    ]
    run = subprocess.run(
        [*command, sys.executable, __file__],
        capture_output=True,
        text=True,
        timeout=300,
        env=dict(os.environ),
        check=True,
    )
    table = list(csv.reader(line for line in run.stdout.splitlines() if line.startswith('"')))
    column = {name: table[0].index(name) for name in (LOADS, WAVEFRONTS, IDEAL, SECTORS)}
    found = []
    for pattern, row in zip(PATTERNS, table[2:], strict=True):
        value = {name: int(row[at].replace(",", "")) for name, at in column.items()}
        counts = {"kind": pattern.kind, "size": pattern.size, "name": pattern.name}
        counts["wavefronts"] = value[LOADS if pattern.kind == "ld" else WAVEFRONTS]
        counts["ideal"] = value[IDEAL]
        if pattern.kind == "cp.async":  # without the loads of the lanes' offsets
            counts["sectors"] = value[SECTORS] - 4 - -(-int((pattern.source >= 0).sum()) // 8)
        found.append(counts)
    assert found == json.loads(RECORDED.read_text())["counts"]


if __name__ == "__main__":
    launch_all()
