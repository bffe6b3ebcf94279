"""All configurations at once say what each of them says alone: stages, SMs, splits, predicted time."""

from collections import Counter

import numpy as np
import pytest

from covering import examples
from warptile.device import KNOWN, REFERENCE
from warptile.dtypes import DTYPES
from warptile.problem import Problem
from warptile.rungs.legality import ceil_div
from warptile.rungs.wgmma import candidates, cost, tiles
from warptile.rungs.wgmma.pool import other_schedules, pool
from warptile.rungs.wgmma.tile_shapes import FEWEST_STAGES, shapes, splits_of, stages

TYPES = (
    ("bfloat16", "bfloat16", "float32"),
    ("float16", "float32", "float32"),
    ("float16", "float16", "float16"),
    ("tfloat32", "float32", "float32"),
    ("float8_e4m3", "bfloat16", "float32"),
    ("float8_e5m2", "float16", "float32_fast"),
    ("int8", "int32", "int32"),
)
DEVICES = (REFERENCE, KNOWN["NVIDIA H100 PCIe"], KNOWN["NVIDIA H20"])


def drawn(generator):
    """A problem of any type, layout, alignment and size that wgmma-final takes."""
    element, out, accumulator = TYPES[generator.integers(len(TYPES))]
    m, n, k = (int(2 ** generator.uniform(0, 13.5)) for _ in range(3))
    if generator.random() < 0.6:
        m, n, k = (max(16, each // 16 * 16) for each in (m, n, k))
    wide = DTYPES[element].bits == 16
    batch = int(generator.choice((1, 1, 1, 3, 8))) if wide else 1
    problem = Problem.dense(
        m, n, k, DTYPES[element], out=DTYPES[out], accumulator=DTYPES[accumulator],
        a_major=str(generator.choice(("row", "col"))), b_major=str(generator.choice(("row", "col"))),
        with_c=bool(generator.random() < 0.3), batch=batch,
    )  # fmt: skip
    return problem.displaced(1) if batch == 1 and generator.random() < 0.15 else problem


@pytest.mark.parametrize("seed", range(examples(120)))
def test_each_configuration_is_as_it_is_alone(seed):
    generator = np.random.default_rng(seed)
    problem, device = drawn(generator), DEVICES[generator.integers(len(DEVICES))]
    if tiles.type_reason(problem, batches=True) is not None:
        return
    found = pool(problem, device)
    every = list(found)
    assert len(every) == len(found.times_us) > 0
    for place in generator.choice(len(every), min(len(every), 25), replace=False):
        time_us, config = every[place]
        view = tiles.view(problem, config)
        assert time_us == pytest.approx(cost.estimate_view_us(view, config, device), rel=1e-9), config
        whole = {**config, "SPLITS": 1}
        assert config["STAGES"] == max(stages(tiles.view(problem, whole).problem, whole, device), 2)
        assert config["SMS"] == candidates.fitted(problem, config, device)["SMS"]
    ranked = [float(found.times_us[place]) for place in found.ranked()]
    assert ranked == sorted(ranked)
    best = found.ranked()[: candidates.EXPANDED]
    others = other_schedules(problem, found, best, device)
    alone = [each for place in best for each in candidates.schedules(problem, found.config(int(place)), device)]
    assert Counter(map(key, (config for _, config in others))) == Counter(map(key, alone))
    for time_us, config in others:
        assert time_us == pytest.approx(cost.estimate_us(problem, config, device), rel=1e-9), config


def key(config):
    return tuple(sorted(config.items()))


@pytest.mark.parametrize("size", [(4096, 4096, 4096), (64, 8192, 8192), (200, 136, 4096), (16, 1000, 333)])
def test_every_tile_comes_with_every_split(size):
    half = DTYPES["bfloat16"]
    problem = Problem.dense(*size, half, out=half, accumulator=DTYPES["float32"])
    by_tile = {}
    for _, config in pool(problem, REFERENCE):
        tile = config["BM"], config["BN"], config["CONSUMERS"], config["SWAP"]
        by_tile.setdefault((tile, config["BK"]), []).append(config)
    for (tile, bk), configs in by_tile.items():
        bm, bn, _, swap = tile
        m, n = (problem.n, problem.m) if swap else (problem.m, problem.n)
        count = ceil_div(m, bm) * ceil_div(n, bn)
        basic = [config["SPLITS"] for config in configs if not config["OVERLAP"]]
        assert basic == splits_of(count, ceil_div(problem.k, bk), REFERENCE)
        assert sum(config["OVERLAP"] for config in configs) <= 2
    listed = {tile for tile, _ in by_tile}
    for shape in shapes(problem, REFERENCE):
        bm, bn, _, swap = shape
        m, n = (problem.n, problem.m) if swap else (problem.m, problem.n)
        padding = (bm > 64 and bm >= 2 * m) or (bn > 16 and bn >= 2 * n)
        config = candidates.made(problem, *shape, 128, REFERENCE)
        assert (shape in listed) == (not padding and config["STAGES"] >= FEWEST_STAGES), shape


@pytest.mark.parametrize(("k", "groups"), [(4095, {8, 16}), (4096, {8})])
def test_a_square_group_is_offered_where_it_lets_the_gemm_repack(k, groups):
    half = DTYPES["bfloat16"]
    problem = Problem.dense(4096, 4096, k, half, out=half, accumulator=DTYPES["float32"], b_major="col")
    assert {config["GROUP"] for _, config in pool(problem, REFERENCE) if config["OVERLAP"]} == groups
