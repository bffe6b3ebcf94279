"""Two emulated GPUs, each of which multiplies an A whose other half comes from the other one while it does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from warptile.arrays.array_view import numpy_dtype
from warptile.codegen.nvrtc import compile_ptx
from warptile.codegen.translation_unit import translation_unit
from warptile.device import REFERENCE
from warptile.dtypes import DTYPES
from warptile.emulator import EmulationReport, emulate
from warptile.launch.access import Access, Rows
from warptile.launch.concurrent_stream import ConcurrentStream, StreamCopy, StreamFlag
from warptile.planning.gathered_plan import GatheredPlan
from warptile.problem import Problem
from warptile.ptx import parse
from warptile.rungs.wgmma.gathered import FLAG_BYTES, SHARD_FLAGS, Shards
from warptile.verify.reference import error_ratio, reference
from wgmma_product import ARCH, small

GPUS = 2


@dataclass(frozen=True)
class Gathered:
    """A problem and how it is run.

    Attributes:
        m, n, k: extents of the GEMM of all rows.
        config: changes to a small configuration.
        before: CUDA C++ before the kernel's own, such as a macro that plants a bug.
    """

    m: int = 192
    n: int = 72
    k: int = 136
    config: tuple[tuple[str, int], ...] = (("CONSUMERS", 1), ("BM", 64), ("SMS", 2), ("GROUP", 2))
    before: str = ""

    @property
    def problem(self) -> Problem:
        """All rows, bf16."""
        element = DTYPES["bfloat16"]
        return Problem.dense(self.m, self.n, self.k, element, out=element, accumulator=DTYPES["float32"], b_major="col")

    def plan(self, gpu: int) -> GatheredPlan:
        """The plan of one GPU."""
        config = small("wgmma-final", "bfloat16", **dict(self.config))
        return GatheredPlan.of(self.problem, Shards(GPUS, self.m // GPUS, gpu), REFERENCE, config)

    @property
    def shard_bytes(self) -> int:
        """Of one GPU's rows."""
        return self.m // GPUS * self.k * 2


@lru_cache(maxsize=16)
def _module(gathered: Gathered):
    """Entry and PTX, the same on both GPUs."""
    source = translation_unit(gathered.plan(0).kernel)
    kernel = compile_ptx(replace(source, text=gathered.before + source.text), ARCH)
    return kernel.entry, parse(kernel.ptx)


def push(gathered: Gathered, target: int) -> tuple[StreamCopy, StreamFlag]:
    """What the other GPU sends to a GPU: its rows, and the flag that says so."""
    source = 1 - target
    copy = StreamCopy(
        f"rows of GPU {source}", "A", gathered.shard_bytes, target_offset_bytes=source * gathered.shard_bytes
    )
    return copy, StreamFlag(SHARD_FLAGS, source * FLAG_BYTES)


def run(
    gathered: Gathered, gpu: int, streams: tuple[ConcurrentStream, ...] | None = None, **options
) -> tuple[float, np.ndarray, EmulationReport]:
    """Multiply on one GPU.

    Args:
        gathered: what.
        gpu: which.
        streams: beside the launch; by default the other GPU's, which sends its rows and sets their flag.
        options: for `emulate`.

    Returns:
        The largest error over its bound, D, and the emulator's report.
    """
    random = np.random.default_rng(7)
    element = numpy_dtype(DTYPES["bfloat16"])
    a = random.standard_normal((gathered.m, gathered.k)).astype(element)
    b = random.standard_normal((gathered.k, gathered.n)).astype(element)
    rows, other = gathered.m // GPUS, 1 - gpu
    received = a.copy()
    received[other * rows :][:rows] = np.nan  # what the last call has left there
    operands = {
        "A": received, "B": np.ascontiguousarray(b.T), "D": np.full((gathered.m, gathered.n), np.nan, element),
        SHARD_FLAGS: np.array([gpu == 0, gpu == 1], np.uint32), f"rows of GPU {other}": a[other * rows :][:rows].copy(),
    }  # fmt: skip
    if streams is None:
        streams = (ConcurrentStream(f"GPU {other} to GPU {gpu}", push(gathered, gpu)),)
    entry, module = _module(gathered)
    written = Rows(gathered.m, gathered.n, 2, gathered.n * 2)
    report = emulate(
        module, gathered.plan(gpu).launch(entry), operands,
        accesses={
            "A": Access(writes=True), SHARD_FLAGS: Access(writes=True), "D": Access(writes=True, complete=written)
        },
        arch=ARCH, beside=streams, **options,
    )  # fmt: skip
    found = reference(gathered.problem, a, b)
    return error_ratio(operands["D"], found), operands["D"], report
