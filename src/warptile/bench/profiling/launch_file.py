"""Launch a user's kernel once: the program that runs under Nsight Compute.

    python -m warptile.bench.profiling.launch_file REQUESTS.json

The requests are files, each with a `StoredLaunch` that the process before wrote.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from warptile.bench.profiling.ncu import launch_each
from warptile.codegen.nvrtc import CompiledKernel
from warptile.gpu import driver, loader
from warptile.launch.spec import LaunchSpec


@dataclass(frozen=True)
class StoredLaunch:
    """A kernel, its launch, and the bytes of its operands."""

    kernel: CompiledKernel
    spec: LaunchSpec
    buffers: dict[str, NDArray[np.uint8]]


def launch(path: str) -> None:
    """Launch what a file stores, and wait."""
    stored: StoredLaunch = pickle.loads(Path(path).read_bytes())
    memory = {name: driver.Allocation.from_array(array) for name, array in stored.buffers.items()}
    loader.load(stored.kernel).launch(stored.spec, {name: each.address for name, each in memory.items()})
    driver.synchronize()
    for each in memory.values():
        each.close()


def main(path: str) -> int:
    """Launch all requests of a file; 1 when one failed."""
    requests = msgspec.json.decode(Path(path).read_bytes(), type=list[str])
    driver.enter()
    return launch_each(requests, launch)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
