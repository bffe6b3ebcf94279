"""A product as Hopper's fast kernels make it, on the emulator with every check on: right, counted, and soon done."""

from __future__ import annotations

import time

import numpy as np
import pytest

from covering import covering
from hopper_product import BK, BM, BN, run
from warptile.emulator import EmulationReport

STAGE_BYTES = (BM + BN) * BK * 2


def bfloat16(values: np.ndarray) -> np.ndarray:
    """Words of small whole numbers, which bfloat16 holds exactly."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def product(
    m: int, n: int, k: int, *, cluster: int = 1, blocks: int = 132, schedule: str = "latest"
) -> EmulationReport:
    """A product of zeros and ones in runs, so that sums stay below 256 and are exact; checked."""
    random = np.random.default_rng(m + n + k)
    a, b = (random.random((rows, k)) < 0.25 for rows in (m, n))
    found, report = run(bfloat16(a), bfloat16(b), cluster=cluster, blocks=blocks, schedule=schedule)
    exact = a.astype(np.float32) @ b.T.astype(np.float32)
    assert exact.max() < 256
    np.testing.assert_array_equal(found, bfloat16(exact))
    return report


@pytest.mark.parametrize(
    ("cluster", "blocks", "schedule"),
    [
        (*launch, schedule)
        for launch, schedule in covering(
            ((1, 132), (2, 132), (2, 2), (1, 1)), ("latest", "earliest", "random:4"), pairs=()
        )
    ],
)
def test_it_is_right_under_every_schedule(cluster: int, blocks: int, schedule: str) -> None:
    product(256, 256, 320, cluster=cluster, blocks=blocks, schedule=schedule)


@pytest.mark.parametrize("cluster", [1, 2])
def test_traffic_is_counted_by_where_it_goes(cluster: int) -> None:
    m, n, k = 256, 512, 128
    counters = product(m, n, k, cluster=cluster).counters
    tiles, steps = m // BM * (n // BN), k // BK
    assert counters["tma_load_sectors"] == tiles * steps * STAGE_BYTES / 32  # to each block, whoever asked for it
    assert counters["global_load_bytes"] == tiles * steps * (BM + BN // cluster) * BK * 2  # a cluster reads B once
    assert 32 * counters["tma_store_sectors"] == counters["global_store_bytes"] == m * n * 2
    assert counters["tma_reduce_sectors"] == 0
    # Each of two warpgroups reads its 64 rows of A, and all of B.
    assert counters["tensor_operand_wavefronts"] == tiles * steps * 2 * (64 + BN) * BK * 2 / 128
    assert counters["tensor_flops"] == 2 * m * n * k
    assert counters["tensor_instructions"] == tiles * 2 * 4 * (k // 16)  # by each of four warps
    assert counters["shared_store_wavefronts"] == counters["shared_store_wavefronts_ideal"] == m * n * 2 / 128


def test_a_large_product_takes_well_under_a_minute(record_property: pytest.FixtureRequest) -> None:
    product(128, 256, 64)  # what Numba compiles is not counted
    start = time.process_time()
    product(512, 1024, 512)
    seconds = time.process_time() - start
    record_property("seconds", round(seconds, 2))
    assert seconds < 20, f"{seconds:.1f} s"
