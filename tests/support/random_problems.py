"""Random problems of every type, layout, alignment, batch and size that wgmma-final takes, and GPUs to run them on."""

from __future__ import annotations

import numpy as np

from warptile.device import KNOWN, REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES
from warptile.problem import Problem
from warptile.rungs.wgmma import tiles

TYPES = (
    ("bfloat16", "bfloat16", "float32"),
    ("float16", "float32", "float32"),
    ("float16", "float16", "float16"),
    ("tfloat32", "float32", "float32"),
    ("float8_e4m3", "bfloat16", "float32"),
    ("float8_e5m2", "float16", "float32_fast"),
    ("int8", "int32", "int32"),
    ("uint8", "int32", "int32"),
    ("int8", "int32", "int32_saturating"),
    ("bit1", "int32", "int32"),
)
"""Element, output and accumulator types."""

DEVICES = (REFERENCE, KNOWN["NVIDIA H100 PCIe"], KNOWN["NVIDIA H20"])


def random_problem(generator: np.random.Generator) -> Problem:
    """A problem that wgmma-final takes."""
    while True:
        problem = _any_problem(generator)
        if tiles.type_reason(problem, batches=True) is None:
            return problem


def random_device(generator: np.random.Generator) -> DeviceLimits:
    """One of `DEVICES`."""
    return DEVICES[generator.integers(len(DEVICES))]


def _any_problem(generator: np.random.Generator) -> Problem:
    names = TYPES[generator.integers(len(TYPES))]
    element, out, accumulator = (DTYPES[name] for name in names)
    m, n, k = (int(2 ** generator.uniform(0, 13.5)) for _ in range(3))
    if generator.random() < 0.6:
        m, n, k = (max(16, each // 16 * 16) for each in (m, n, k))
    batch = int(generator.choice((1, 1, 1, 3, 8))) if element.bits == 16 else 1
    a_major, b_major = (str(generator.choice(("row", "col"))) for _ in range(2))
    problem = Problem.dense(
        m, n, k, element, out=out, accumulator=accumulator, a_major=a_major, b_major=b_major,
        with_c=bool(generator.random() < 0.3), batch=batch,
    )  # fmt: skip
    return problem.displaced(1) if batch == 1 and element.bits >= 8 and generator.random() < 0.15 else problem
