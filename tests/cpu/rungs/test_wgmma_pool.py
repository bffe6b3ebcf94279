"""All configurations at once say what each of them says alone: stages, SMs, splits, predicted time."""

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from covering import examples
from random_problems import TYPES, random_device, random_problem
from warptile.device import REFERENCE
from warptile.dtypes import DTYPES
from warptile.native.formulas import Formulas
from warptile.problem import Problem
from warptile.rungs.legality import ceil_div
from warptile.rungs.wgmma import candidates, cost, kernels, tiles
from warptile.rungs.wgmma.estimates import estimate_us
from warptile.rungs.wgmma.final import illegal_on
from warptile.rungs.wgmma.kernels import SHAPES, SURVEYED, kernels_for, shape_of
from warptile.rungs.wgmma.model import FEW
from warptile.rungs.wgmma.pool import SPLITS, pool
from warptile.rungs.wgmma.tile_shapes import FEWEST_STAGES, stages
from warptile.rungs.wgmma.tiles import ROW_BYTES

MOST_KERNELS = 256
"""Kernels that plans choose from, each a compilation, for a combination of types and layouts."""

SAMPLED = 40
"""Configurations of a problem that are looked at one by one."""


def half(m, n, k, **options):
    element = DTYPES["bfloat16"]
    return Problem.dense(m, n, k, element, out=element, accumulator=DTYPES["float32"], **options)


def tiles_of_d(problem, config):
    """Tiles of D, those of a cluster counted as one."""
    m, n = (problem.n, problem.m) if config["SWAP"] else (problem.m, problem.n)
    return ceil_div(m, config["BM"] * config["CM"]) * ceil_div(n, config["BN"] * config["CN"]) * problem.batch


def most_stages(problem, config, device):
    """The most stages that fit, whether CTAs of a cluster split K or each stores a whole tile."""
    each = ({**config, "SPLITS": 1}, config)
    return max(min(stages(tiles.view(problem, one).problem, one, device) for one in each), 2)


def all_of(problem, device=REFERENCE):
    """Every configuration of the kernels that plans choose from."""
    return pool(problem, illegal_on(device), device, kernels_for(problem, shape_of(problem)))


@pytest.mark.parametrize("seed", range(examples(150)))
def test_each_configuration_is_as_it_is_alone(seed):
    generator = np.random.default_rng(seed)
    problem, device = random_problem(generator), random_device(generator)
    illegal = illegal_on(device)
    found = all_of(problem, device)
    assert len(found.rows) == len(found.times_us) > 0
    for place in generator.choice(len(found.rows), min(len(found.rows), SAMPLED), replace=False):
        config = found.config(int(place))
        assert illegal(problem, config) is None, config
        assert found.times_us[place] == pytest.approx(estimate_us(problem, config, device), rel=1e-4), config
        assert config["STAGES"] == most_stages(problem, config, device), config
        assert config["SMS"] == candidates.fitted(problem, config, device)["SMS"] <= device.sms, config
        k_tiles, splits = ceil_div(problem.k, config["BK"]), config["SPLITS"]
        if splits > 1:
            assert ceil_div(k_tiles, ceil_div(k_tiles, splits)) == splits, config
            assert tiles_of_d(problem, config) * config["CM"] * config["CN"] * splits <= device.sms, config


@pytest.mark.parametrize("seed", range(examples(60)))
def test_a_choice_among_the_nearest_is_one_among_all(seed):
    generator = np.random.default_rng(seed)
    problem, device = random_problem(generator), random_device(generator)
    # A rough look errs most where K is about as long as an instruction.
    assert_chosen_among_all(problem, device, most=0.02 if min(problem.n, problem.k) > 128 else 0.15)


def test_what_a_choice_among_the_nearest_costs():
    lost = []
    for seed in range(examples(120)):
        generator = np.random.default_rng(seed)
        problem, device = random_problem(generator), random_device(generator)
        nearest = pool(problem, illegal_on(device), device).times_us.min()
        lost.append(np.log(nearest / all_of(problem, device).times_us.min()))
    assert 0 <= np.mean(lost) < 0.004
    assert np.mean(np.array(lost) > 0.02) < 0.03


def assert_chosen_among_all(problem, device=REFERENCE, most=0.02):
    """What is fastest of the few that are looked at closely is nearly the fastest of all."""
    found, every = pool(problem, illegal_on(device), device), all_of(problem, device)
    assert 0 < len(found.times_us) <= min(len(every.times_us), FEW)
    assert every.times_us.min() == pytest.approx(found.times_us.min(), rel=most)
    as_all = {tuple(config.items()): time_us for time_us, config in every}
    for time_us, config in found:
        assert time_us == pytest.approx(as_all[tuple(config.items())], rel=1e-6)


@pytest.mark.parametrize("m", [16, 200, 4096])
def test_scales_and_epilogues_count_before_few_are_looked_at_closely(m):
    generator = np.random.default_rng(m)
    a, b = (generator.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((m, 7168), (2048, 7168)))
    scales = np.ones((m, 56), np.float32), np.ones((56, 16), np.float32)
    blocks = wt.plan(a, b.T, scale_a=scales[0], scale_b=scales[1], out_dtype="bfloat16", backend="emulator")
    assert_chosen_among_all(blocks.problem)
    half = generator.standard_normal((m, 512)).astype(np.float16), np.zeros((512, 3072), np.float16)
    fused = wt.plan(*half, epilogue=lambda acc: wt.gelu(acc), backend="emulator")
    assert fused.plan.problem.epilogue is not None
    assert_chosen_among_all(fused.plan.problem)


@pytest.mark.parametrize("seed", range(examples(12)))
def test_ranks_are_in_order_of_predicted_time_and_no_configuration_is_listed_twice(seed):
    generator = np.random.default_rng(seed)
    problem, device = random_problem(generator), random_device(generator)
    found = pool(problem, illegal_on(device), device)
    times = found.times_us[found.ranked()]
    assert (np.diff(times) >= 0).all()
    listed = [tuple(config.items()) for _, config in found]
    assert len(set(listed)) == len(listed) == len(found.rows)
    default = candidates.default(problem, illegal_on(device), device)
    assert default == found.config(int(found.ranked()[0]))


@pytest.mark.parametrize("seed", range(examples(20)))
def test_machine_code_predicts_what_numpy_does(seed, monkeypatch):
    """Which of them serves depends on how many problems a process has planned."""
    generator = np.random.default_rng(seed)
    problem, device = random_problem(generator), random_device(generator)
    illegal = illegal_on(device)
    with monkeypatch.context() as patch:
        patch.setattr(Formulas, "__call__", Formulas.by_numpy)
        by_numpy = pool(problem, illegal, device)
    with monkeypatch.context() as patch:
        patch.setattr(Formulas, "__call__", by_machine_code)
        found = pool(problem, illegal, device)
    np.testing.assert_array_equal(found.rows.numbers, by_numpy.rows.numbers)
    np.testing.assert_allclose(found.times_us, by_numpy.times_us, rtol=1e-6)
    assert found.ranked()[0] == by_numpy.ranked()[0]


def by_machine_code(formulas, columns, numbers):
    if formulas.compiled.made is None:
        formulas.compiled.make_now()
    return formulas.compiled.made(columns, numbers)


def expected(problem, kernel, device):
    """Legal configurations of a kernel, made one by one."""
    m, n = (problem.n, problem.m) if kernel.swap else (problem.m, problem.n)
    if (kernel.bm > 64 and kernel.bm >= 2 * m) or (kernel.bn > 16 and kernel.bn >= 2 * n):
        return  # mostly padding
    few = ceil_div(m, kernel.bm * kernel.cm) * ceil_div(n, kernel.bn * kernel.cn) * problem.batch
    if kernel.schedule == "stream-K" and few * kernel.cm * kernel.cn < device.sms:
        return  # many CTAs would meet at each tile
    k_bytes = kernel.rows * ROW_BYTES
    config = {
        **candidates.made(problem, kernel.bm, kernel.bn, kernel.consumers, kernel.swap, k_bytes, device),
        "CM": kernel.cm, "CN": kernel.cn, "OVERLAP": int(kernel.schedule == "overlap"),
        "STREAM": int(kernel.schedule == "stream-K"), "PINGPONG": int(kernel.schedule == "ping-pong"),
    }  # fmt: skip
    config["STAGES"] = stages(tiles.view(problem, config).problem, config, device)
    if config["STREAM"] and tiles_of_d(problem, config) * kernel.cm * kernel.cn < device.sms:
        return  # many CTAs would wait for each other at each tile
    k_tiles = ceil_div(problem.k, config["BK"])
    resident = tiles.resident_ctas(device)[kernel.cm * kernel.cn]
    most = min(resident // (tiles_of_d(problem, config) * kernel.cm * kernel.cn), k_tiles)
    most_even = ceil_div(k_tiles, ceil_div(k_tiles, max(most, 1)))
    splits = {"split": {*SPLITS, most_even}, "cluster": {kernel.parts}}.get(kernel.schedule, {1})
    for number in splits:
        split = {**config, "SPLITS": number}
        if number > 1 and (number > most or ceil_div(k_tiles, ceil_div(k_tiles, number)) != number):
            continue
        if kernel.schedule == "cluster":
            split["STAGES"] = most_stages(problem, split, device)
        if split["STAGES"] < (2 if kernel.schedule == "overlap" else FEWEST_STAGES):
            continue
        split = candidates.fitted(problem, split, device)
        in_cluster = tiles.cluster_k(tiles.view(problem, split).problem, split, device) > 1
        as_named = (number > 1) == (kernel.schedule in ("split", "cluster"))
        if as_named and in_cluster == (kernel.schedule == "cluster") and illegal_on(device)(problem, split) is None:
            yield tuple(sorted(split.items()))


@pytest.mark.parametrize(
    ("size", "options"),
    [
        ((4096, 4096, 4096), {}), ((64, 8192, 8192), {}), ((200, 136, 4096), {}), ((16, 1000, 333), {}),
        ((512, 384, 8192), {"b_major": "col"}), ((96, 96, 65536), {"a_major": "col"}), ((40, 64, 2048), {"batch": 3}),
    ],
)  # fmt: skip
def test_every_legal_kernel_is_listed_with_every_split(size, options):
    problem = half(*size, **options)
    listed = {tuple(sorted(config.items())) for _, config in all_of(problem) if config["GROUP"] == 8}
    those = kernels_for(problem, shape_of(problem))
    alone = {config for kernel in those for config in expected(problem, kernel, REFERENCE)}
    assert alone - listed == set()
    assert listed - alone == set()


@pytest.mark.parametrize(
    ("types", "splits"),
    [
        (("int8", "int32", "int32_saturating"), False),  # the order of additions must not change
        (("float16", "float16", "float16"), True),  # accumulator registers are reduced four at a time
    ],
)
def test_splits_that_the_kernel_never_takes_are_not_listed(types, splits):
    element, out, accumulator = (DTYPES[name] for name in types)
    problem = Problem.dense(16, 96, 65536, element, out=out, accumulator=accumulator, b_major="col")
    listed = [config for _, config in all_of(problem)]
    assert listed
    columns = {config["BN"] for config in listed if config["SPLITS"] > 1 or config["STREAM"]}
    assert not columns & {8, 24}
    assert bool(columns) == splits


@pytest.mark.parametrize(("k", "groups"), [(4095, {8, 16}), (4096, {8})])
def test_a_square_group_is_offered_where_it_lets_the_gemm_repack(k, groups):
    problem = half(4096, 4096, k, b_major="col")
    found = all_of(problem)
    assert {config["GROUP"] for _, config in found if config["OVERLAP"]} == groups


@pytest.mark.parametrize("types", TYPES, ids=" ".join)
def test_plans_choose_from_a_few_of_the_surveyed_kernels_for_every_type(types):
    element, out, accumulator = (DTYPES[name] for name in types)
    for a_major in ("row", "col"):
        for b_major in ("row", "col"):
            problem = Problem.dense(
                512, 512, 512, element, out=out, accumulator=accumulator, a_major=a_major, b_major=b_major
            )
            for shape in ("", *SHAPES):
                chosen = kernels_for(problem, shape)
                assert set(chosen) <= set(SURVEYED)
                assert 0 < len(set(chosen)) == len(chosen) <= MOST_KERNELS


def test_every_list_of_kernels_is_of_types_that_there_are():
    assert {name.rsplit(" to ", 1)[0] for name in kernels._chosen()} == set(cost.TYPES)
