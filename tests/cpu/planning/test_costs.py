"""What launches of wgmma-final cost: formulas that keep their order, a correction that stays sane, and a model file
that is as good as it says on the survey that it is fitted to."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from covering import examples
from random_problems import random_device, random_problem
from recorded import about, survey_record
from warptile.bench.campaign import fit_costs
from warptile.bench.campaign.calibration import DIFFERING
from warptile.bench.campaign.surveyed_launches import Measured, choices, measured_in, quality, some
from warptile.bench.protocol.records import SurveyRecord, committed
from warptile.device import KNOWN, REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.kernel_spec import Config
from warptile.rungs.wgmma import candidates, model, tiles
from warptile.rungs.wgmma.correction import features
from warptile.rungs.wgmma.cost import SCHEDULES, TYPES, Costs, Launches, Predicted, column_parts, loaded_columns, loads
from warptile.rungs.wgmma.estimates import estimate_us, terms_us
from warptile.rungs.wgmma.final import illegal_on
from warptile.rungs.wgmma.launches import launches_of
from warptile.rungs.wgmma.model import FittedModel, model_of
from warptile.rungs.wgmma.pool import pool

FITTED_GPUS = (REFERENCE.name, "NVIDIA H100 80GB HBM3")
"""GPU models with a model file."""

MODEL = model_of(REFERENCE.name)
FITTED = MODEL.fitted
ALL_SURVEYS = [each for each in committed() if isinstance(each, SurveyRecord) and not each.of_plans]
SURVEYS = [each for each in ALL_SURVEYS if each.environment.gpu == REFERENCE.name and each.id in FITTED.records]


@lru_cache(maxsize=1)
def every_launch() -> Measured:
    """All launches of these surveys: of no use to a process that only collects tests, or runs others."""
    return measured_in(SURVEYS)


def problem(m: int, n: int, k: int, **options: Any) -> Problem:
    """A matmul of bfloat16, K-major operands."""
    bf16 = DTYPES["bfloat16"]
    options = {"b_major": "col", **options}
    return Problem.dense(m, n, k, bf16, out=bf16, accumulator=DTYPES["float32"], **options)


def config(of: Problem, **changes: int) -> Config:
    """The default configuration of wgmma-final with other tunables."""
    return {**RUNGS["wgmma-final"].default_config(of), **changes}


def together(found: list[Launches]) -> Launches:
    """Many launches as arrays."""
    return Launches(**{each.name: np.array([getattr(one, each.name) for one in found]) for each in fields(Launches)})


def some_launches(of: Problem, device: DeviceLimits, generator: np.random.Generator, most: int = 60) -> Launches:
    """Launches of some of the problem's configurations."""
    found = pool(of, illegal_on(device), device)
    places = generator.choice(len(found.rows), min(len(found.rows), most), replace=False)
    configs = [found.config(int(place)) for place in places]
    return together([launches_of(tiles.view(of, each), each, device) for each in configs])


def by_formula(launches: Launches) -> NDArray[np.float64]:
    """What the formulas alone predict."""
    return np.asarray(predicted(launches)[1].total_us, np.float64)


def predicted(launches: Launches) -> tuple[NDArray[np.float64], Predicted]:
    """Microseconds, corrected, and what the formulas say."""
    return MODEL.predict(launches)


# --- the formulas -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(examples(60)))
def test_more_work_never_takes_less_time(seed: int) -> None:
    generator = np.random.default_rng(seed)
    of, device = random_problem(generator), random_device(generator)
    launches = some_launches(of, device, generator)
    times = by_formula(launches)
    assert (times > 0).all()
    assert np.isfinite(times).all()
    more_work: dict[str, dict[str, Any]] = {
        "twice the K": {"k": 2 * launches.k},
        "twice the rows": {"m": 2 * launches.m, "tiles": 2 * launches.tiles},
        "twice the columns": {"n": 2 * launches.n, "tiles": 2 * launches.tiles},
        "a repacking pass": {"repacking_us": launches.repacking_us + 5.0},
    }
    for name, changes in more_work.items():
        assert (by_formula(replace(launches, **changes)) > times).all(), name
    one_stage_more = by_formula(replace(launches, stages=launches.stages + 1))
    assert (one_stage_more <= times * (1 + 1e-9)).all()
    with_c, without = (by_formula(replace(launches, with_c=value)) for value in (1, 0))
    assert (with_c > without).all()


@pytest.mark.parametrize("seed", range(examples(30)))
@pytest.mark.parametrize("pitch", ["pitch_a", "pitch_b", "pitch_d"])
def test_a_pitch_that_is_no_multiple_of_128_bytes_is_not_faster(seed: int, pitch: str) -> None:
    generator = np.random.default_rng(seed)
    launches = some_launches(random_problem(generator), random_device(generator), generator)
    whole = by_formula(replace(launches, **{pitch: np.full_like(launches.k, 8192)}))
    for beyond in (2, 16, 32, 64, 96):
        assert (by_formula(replace(launches, **{pitch: np.full_like(launches.k, 8192 + beyond)})) >= whole).all()


@pytest.mark.parametrize("extents", [(8192, 8192, 8192), (4096, 16384, 4096), (4096, 4096, 4095)])
def test_more_sms_are_not_slower_on_a_large_problem(extents: tuple[int, int, int]) -> None:
    of = problem(*extents)
    devices = [replace(REFERENCE, multiprocessors=sms) for sms in (64, 78, 100, 114, 132)]
    planned = [
        estimate_us(of, RUNGS["wgmma-final"].default_config(of, device), device)
        for device in (KNOWN["NVIDIA H20"], KNOWN["NVIDIA H100 PCIe"], REFERENCE)
    ]
    assert planned == sorted(planned, reverse=True)
    launches = some_launches(of, REFERENCE, np.random.default_rng(0), most=200)
    times = [by_formula(replace(launches, sms=np.full_like(launches.sms, each.sms))) for each in devices]
    for fewer, more in pairwise(times):
        assert (more <= fewer * 1.001).all()  # those that no SM limits share L2 with more


def test_columns_of_an_n_major_b_are_counted_as_they_are_loaded() -> None:
    for bn in range(8, 257, 8):
        of_b = tiles.SmemTile(bn, 64, 2, k_major=False)
        whole = -(-bn // of_b.row_units) - 1
        assert loaded_columns(bn, np) == whole * of_b.row_units + of_b.last_row_units


@pytest.mark.parametrize("bn", [8, 24, 64, 80, 96, 112, 128, 168, 200, 256])
@pytest.mark.parametrize("pitch", [4096, 4096 + 64, 4096 + 32, 4096 + 80])
def test_lines_and_sectors_of_an_n_major_b_are_those_of_its_rows(bn: int, pitch: int) -> None:
    of = problem(4096, pitch // 2, 4096, b_major="row")
    tile = config(of, BM=64, BN=bn, BK=64, CONSUMERS=1, CM=1, CN=1, SWAP=0, SPLITS=1, PINGPONG=0, OVERLAP=0)
    of_b = tiles.SmemTile(bn, 64, 2, k_major=False)
    panels = [128] * (-(-bn // 64) - 1) + [2 * of_b.last_row_units]
    lines, sectors = 0, 0
    for number, k in product(range(8), range(8)):  # all places of a line at which rows begin
        for panel, size in enumerate(panels):
            start = 2 * bn * number + pitch * k + 128 * panel
            lines += (start + size - 1) // 128 - start // 128 + 1
            sectors += (start + size - 1) // 32 - start // 32 + 1
    found = loads(launches_of(tiles.view(of, tile), tile, REFERENCE), np)[1]
    assert (found.lines, found.sectors) == (lines, sectors)


def test_a_tile_as_wide_as_the_problem_begins_where_its_operand_does() -> None:
    for n, straddles in ((80, False), (96, True)):
        of = problem(4096, n, 4096, b_major="row")
        of = replace(of, b=replace(of.b, leading_dimension=128))
        tile = config(of, BM=64, BN=80, BK=64, CONSUMERS=1, CM=1, CN=1, SWAP=0, SPLITS=1, PINGPONG=0, OVERLAP=0)
        found = loads(launches_of(tiles.view(of, tile), tile, REFERENCE), np)[1]
        assert (found.lines > 2 * 64) == straddles


def test_zeros_that_tma_fills_in_take_time_in_overlapped_clusters_and_in_old_kernels_alone() -> None:
    of = problem(136, 4224, 8192)
    fixed = {"BM": 128, "BN": 64, "BK": 64, "CONSUMERS": 2, "CM": 1, "SWAP": 0, "SPLITS": 1, "PINGPONG": 0}
    for ctas, overlap, filled in product((1, 2), (0, 1), (False, True)):
        tile = config(of, **fixed, CN=ctas, OVERLAP=overlap)
        found = launches_of(tiles.view(of, tile), tile, REFERENCE, filled=filled)
        assert (predicted(found)[1].filled_us > 0) == (filled or (ctas == 2 and overlap == 1))


def test_more_splits_of_a_long_k_on_few_tiles_help() -> None:
    of = problem(64, 64, 65536)
    tile = config(of, BM=64, BN=64, BK=64, STAGES=8, CONSUMERS=1, CM=1, CN=1, SWAP=0, OVERLAP=0, SMS=132)
    splits = [{**tile, "SPLITS": each} for each in (1, 2, 4, 16, 64)]
    views = [(tiles.view(of, each), each) for each in splits]
    times = by_formula(together([launches_of(view, each, REFERENCE) for view, each in views]))
    assert (np.diff(times) < 0).all()
    corrected = [estimate_us(of, each, REFERENCE) for each in splits]
    assert corrected == sorted(corrected, reverse=True)


@pytest.mark.parametrize(
    ("shape", "better", "worse"),
    [
        ((4096, 4096, 4096), {"SMS": 128}, {"SMS": 100}),
        ((4096, 4096, 4096), {"STAGES": 4}, {"STAGES": 2}),
        ((4096, 4096, 4096), {"BN": 256}, {"BN": 64}),
        ((64, 64, 65536), {"BM": 64, "BN": 64, "CONSUMERS": 1, "SPLITS": 128, "SMS": 132},
         {"BM": 64, "BN": 64, "CONSUMERS": 1, "SPLITS": 8, "SMS": 132}),
        ((16, 8192, 8192), {"BM": 64, "BN": 16, "CONSUMERS": 1, "SWAP": 1, "BK": 128, "STAGES": 9, "SMS": 128},
         {"BM": 64, "BN": 64, "CONSUMERS": 1, "SWAP": 0, "BK": 128, "STAGES": 6, "SMS": 128}),
        ((2048, 2048, 512), {"SMS": 128}, {"BN": 256, "BM": 256, "STAGES": 3, "SMS": 64}),
    ],
)  # fmt: skip
def test_costs_know(shape: tuple[int, int, int], better: Config, worse: Config) -> None:
    of = problem(*shape)
    plain: Config = {
        "BM": 128, "BN": 256, "BK": 64, "STAGES": 4, "CONSUMERS": 2, "CM": 1, "CN": 1, "SWAP": 0, "SPLITS": 1,
        "PINGPONG": 0, "STREAM": 0, "OVERLAP": 0,
    }  # fmt: skip
    times = [estimate_us(of, config(of, **{**plain, **changes}), REFERENCE) for changes in (better, worse)]
    assert times[0] < times[1]


def test_formulas_and_kernels_agree_on_who_shares_columns() -> None:
    problem = Problem.dense(
        4096, 4096, 4096, DTYPES["bfloat16"], out=DTYPES["bfloat16"], accumulator=DTYPES["float32"], b_major="col"
    )
    made = candidates.made(problem, 128, 128, 2, 0, 128, REFERENCE)
    changes = [
        (bm, consumers, pingpong) for bm in (64, 128, 192, 256) for consumers, pingpong in ((1, 0), (2, 0), (2, 1))
    ]
    configs = [{**made, "BM": bm, "CONSUMERS": consumers, "PINGPONG": each} for bm, consumers, each in changes]
    launches = together([launches_of(tiles.view(problem, each), each, REFERENCE) for each in configs])
    parts = [tiles.column_parts(each) for each in configs]
    np.testing.assert_array_equal(column_parts(launches, np), parts)
    assert [change for change, of in zip(changes, parts, strict=True) if of == 2] == [(64, 2, 0), (192, 2, 0)]


def test_a_residue_class_has_the_pitch_of_whole_rows() -> None:
    """Rows of one class are eight rows apart, but classes start one row apart: as many rows straddle lines."""
    of = problem(4096, 4095, 4104)
    chosen = config(
        of, BM=128, BN=192, BK=64, CONSUMERS=2, CM=1, CN=1, SWAP=0, SPLITS=1, PINGPONG=0, STREAM=0, OVERLAP=0
    )
    found = launches_of(tiles.view(of, chosen), chosen, REFERENCE)
    assert found.residues == 1
    assert (found.pitch_a, found.pitch_d) == (2 * 4104, 2 * 4095)


def test_a_plan_explains_by_these_costs() -> None:
    of = problem(4096, 4096, 4096)
    plan = make_plan(of, rung="wgmma-final")
    found, time_us = terms_us(of, plan.config, REFERENCE)
    assert time_us == pytest.approx(estimate_us(of, plan.config, REFERENCE))
    assert plan.prediction.time_ms == pytest.approx(time_us / 1e3)
    assert set(plan.prediction.terms) == set(found)
    assert all(f"{name} " in plan.explain() for name in found)
    resources = {name: each for name, each in found.items() if name != "launch"}
    assert max(resources.values()) + found["launch"] <= time_us * 1.0001 <= sum(found.values()) * 1.001


# --- the correction ---------------------------------------------------------------------------------------------------

MOST_CORRECTED, MOST_CORRECTED_CHOICE = 2.5, 1.7
"""Most that predictions are corrected by, up or down: of any launch, and of the one predicted to be the fastest."""


@pytest.mark.parametrize("seed", range(examples(120)))
def test_the_correction_stays_within_bounds_on_problems_that_were_not_surveyed(seed: int) -> None:
    generator = np.random.default_rng(seed)
    of, device = random_problem(generator), random_device(generator)
    times, found = predicted(some_launches(of, device, generator, most=200))
    factor = times / found.total_us
    assert factor.min() > 1 / MOST_CORRECTED
    assert factor.max() < MOST_CORRECTED
    assert 1 / MOST_CORRECTED_CHOICE < factor[times.argmin()] < MOST_CORRECTED_CHOICE


def test_features_far_beyond_all_that_were_surveyed_are_taken_for_the_farthest() -> None:
    of = problem(4096, 4096, 4096)
    launches = some_launches(of, REFERENCE, np.random.default_rng(0))
    times, found = predicted(replace(launches, m=launches.m * 10**6, tiles=launches.tiles * 10**6))
    factor = times / found.total_us
    assert np.isfinite(factor).all()
    assert 1 / 4 < factor.min() <= factor.max() < 4


def test_the_networks_see_the_features_that_the_file_names() -> None:
    correction, launches = FITTED.correction, some_launches(problem(512, 512, 512), REFERENCE, np.random.default_rng(0))
    assert tuple(features(launches, predicted(launches)[1], np)) == correction.features
    assert len(correction.mean) == len(correction.scale) == len(correction.features)
    assert min(correction.scale) > 0
    for network in correction.networks:
        widths = [len(correction.features)]
        for weights, bias in network.layers:
            assert {len(row) for row in weights} == {widths[-1]}
            assert len(weights) == len(bias)
            widths.append(len(bias))
        assert widths[-1] == 1


# --- the model file ---------------------------------------------------------------------------------------------------


def test_the_file_is_one_of_all_surveys_and_the_records_are_committed() -> None:
    raw = model.file_of(REFERENCE.name).read_bytes()
    assert msgspec.json.encode(msgspec.json.decode(raw, type=FittedModel)) + b"\n" == raw
    assert FITTED.schema == model.SCHEMA
    assert FITTED.gpu == REFERENCE.name
    assert set(FITTED.records) <= {each.id for each in ALL_SURVEYS}
    assert {each.environment.gpu for each in ALL_SURVEYS if each.id in FITTED.records} == set(FITTED_GPUS)
    assert {path.name for path in model.FOLDER.glob("model-*")} == {model.file_of(each).name for each in FITTED_GPUS}


@pytest.mark.parametrize("gpu", FITTED_GPUS[1:])
def test_the_model_of_another_gpu_has_constants_of_its_own_and_the_same_correction(gpu: str) -> None:
    found = model_of(gpu).fitted
    assert found.gpu == gpu
    assert found.records == FITTED.records
    assert found.correction == FITTED.correction
    changed = {
        name for name, value in msgspec.structs.asdict(found.costs).items() if value != getattr(FITTED.costs, name)
    }
    assert set() != changed <= set(DIFFERING)
    own = measured_in(each for each in ALL_SURVEYS if each.environment.gpu == gpu and each.id in found.records)
    assert (found.quality.problems, found.quality.launches) == (len(own.library_us), len(own.times_us))
    by_own, by_reference = (quality(own, model_of(each).predict(own.launches)[0]) for each in (gpu, REFERENCE.name))
    assert by_own.median_error <= found.quality.median_error < 0.7 * by_reference.median_error
    assert found.quality.error_90 < 0.7 * by_reference.error_90
    assert by_own.choice > by_reference.choice - 0.005


def test_constants_are_positive_and_there_is_one_for_each_of_what_they_are_by() -> None:
    costs = FITTED.costs
    lengths = {len(costs.launch_us): SCHEDULES, len(costs.mma_clocks): TYPES, len(costs.flop_pj): TYPES}
    assert all(length == len(of) for length, of in lengths.items())
    assert len(costs.column_factor) == 256 // 8 + 1
    assert len(costs.register_clocks) == len(costs.store_warp_clocks) == 4
    for value in msgspec.structs.astuple(costs):
        assert all(0 < each < math.inf for each in (value if isinstance(value, tuple) else (value,)))


def test_a_gpu_without_a_file_has_the_model_of_the_reference() -> None:
    assert model_of("NVIDIA H20").fitted == FITTED


def test_the_model_is_at_least_as_good_on_its_survey_as_on_problems_left_out() -> None:
    quality = FITTED.quality
    surveyed = every_launch()
    assert (quality.problems, quality.launches) == (len(surveyed.library_us), len(surveyed.times_us))
    assert quality.choice > 0.95
    assert quality.median_error < 0.06
    times, _ = MODEL.predict(surveyed.launches)
    best, chosen = choices(surveyed, times)
    off = np.abs(np.log(surveyed.times_us / times))
    assert math.exp(float(np.log(best / chosen).mean())) >= quality.choice - 0.003
    assert np.median(off) <= quality.median_error * 1.02
    assert np.quantile(off, 0.9) <= quality.error_90 * 1.02


def test_the_correction_makes_predictions_better_than_formulas_alone() -> None:
    times, found = MODEL.predict(every_launch().launches)
    logs = np.log(every_launch().times_us)
    assert np.median(np.abs(logs - np.log(times))) < np.median(np.abs(logs - np.log(found.total_us)))
    assert np.median(np.abs(logs - np.log(found.total_us))) < 0.1


@pytest.mark.parametrize("record", SURVEYS, ids=lambda record: str(record.id))
def test_what_was_planned_is_among_what_was_measured(record: SurveyRecord) -> None:
    for surveyed in record.surveyed:
        timed = [each.config for each in surveyed.tried]
        if not surveyed.planned:  # another kernel was
            continue
        text = " ".join(f"{name}={value}" for name, value in zip(record.keys, surveyed.planned, strict=True))
        refused = any(each.startswith(text) for each in surveyed.failed)  # its registers spilled
        assert surveyed.planned in timed or refused, surveyed.problem
        assert len(set(timed)) == len(timed) > 1, surveyed.problem


# --- the fit ----------------------------------------------------------------------------------------------------------


def test_the_launches_of_a_survey_are_medians_by_problem_without_disturbed_rounds() -> None:
    """One configuration of the second problem took twice as long in one round."""
    found = measured_in([survey_record()])
    assert found.times_us.tolist() == [5.5, 7.0, 221.0, 235.0]
    assert found.problem.tolist() == [0, 0, 1, 1]
    assert found.library_us[0] == 6.0
    assert math.isnan(found.library_us[1])
    assert found.launches.m.tolist() == [512, 512, 4096, 4096]
    both = measured_in([survey_record(), survey_record()])
    assert both.problem.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_choice_of_a_problem_is_the_time_of_what_is_predicted_to_be_fastest() -> None:
    best, chosen = choices(measured_in([survey_record()]), np.array([1.0, 2.0, 4.0, 3.0]))
    assert best.tolist() == [5.5, 221.0]
    assert chosen.tolist() == [5.5, 235.0]


def test_a_file_is_written_for_each_gpu_with_committed_surveys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[object, ...]] = []

    def fit(measured: Mapping[str, Measured], records: Mapping[str, Sequence[str]], say: object) -> list[FittedModel]:
        asked.extend((gpu, len(of.times_us), records[gpu]) for gpu, of in measured.items())
        return [msgspec.structs.replace(FITTED, gpu=gpu) for gpu in measured]

    mine, others = survey_record(), survey_record(**about(gpu="NVIDIA H20"))
    monkeypatch.setattr(fit_costs, "committed", lambda: (others, mine, mine))
    monkeypatch.setattr(fit_costs, "_torch", lambda: None)
    monkeypatch.setattr(fit_costs, "fit", fit)
    monkeypatch.setattr(model, "FOLDER", tmp_path)
    result = CliRunner().invoke(fit_costs.main, [])
    assert result.exit_code == 0, result.output
    for gpu, file in ((REFERENCE.name, "nvidia-h200"), ("NVIDIA H20", "nvidia-h20")):
        found = msgspec.json.decode((tmp_path / f"model-wgmma-final-{file}.json").read_bytes())
        assert found["gpu"] == gpu
        assert ("correction" in found) == (gpu == REFERENCE.name)
    assert asked == [(REFERENCE.name, 8, [mine.id, mine.id]), ("NVIDIA H20", 4, [others.id])]


def test_a_fit_without_surveys_of_the_reference_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_costs, "committed", lambda: (survey_record(**about(gpu="NVIDIA H20")),))
    monkeypatch.setattr(fit_costs, "_torch", lambda: None)
    result = CliRunner().invoke(fit_costs.main, [])
    assert result.exit_code == 2
    assert f"there is no survey of the {REFERENCE.name}" in result.output


def test_a_fit_needs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    result = CliRunner().invoke(fit_costs.main, [])
    assert result.exit_code == 2
    assert "pip install 'warptile[torch]'" in result.output


def first_problems(count: int) -> Measured:
    """The first problems of the survey."""
    every = every_launch()
    kept = some(every, every.problem < count)
    return replace(kept, library_us=every.library_us[:count], by_present_kernels=every.by_present_kernels[:count])


def error(measured: Measured, costs: Costs) -> float:
    """Median of |log| of measured time over what the formulas predict."""
    formulas = msgspec.structs.replace(FITTED, costs=costs)
    _, found = model.Model(formulas).predict(measured.launches)
    return float(np.median(np.abs(np.log(measured.times_us / found.total_us))))


@pytest.fixture
def torch() -> Iterator[Any]:
    """torch, whose default type a fit changes."""
    module = pytest.importorskip("torch")
    before = module.get_default_dtype()
    yield module
    module.set_default_dtype(before)


SLOWER = "a slower GPU"


@pytest.mark.usefixtures("torch")
def test_a_fit_descends_and_its_networks_do_better_still(monkeypatch: pytest.MonkeyPatch) -> None:
    few = first_problems(40)
    measured = {"a GPU": few, SLOWER: replace(few, times_us=1.3 * few.times_us)}
    costs = fit_costs.fit_costs(measured, steps=40)
    assert costs["a GPU"].clock_mhz == fit_costs.START.clock_mhz  # that of others has a factor
    for gpu, of in measured.items():
        assert error(of, costs[gpu]) < 0.8 * error(of, fit_costs.START)
    names = msgspec.structs.asdict(fit_costs.START)
    differing = {name for name in names if len({getattr(of, name) for of in costs.values()}) > 1}
    assert {"launch_us", "watts"} <= differing <= set(DIFFERING)
    monkeypatch.setattr(fit_costs, "EPOCHS", 50)
    monkeypatch.setattr(fit_costs, "fit_costs", lambda measured: costs)
    said: list[str] = []
    models = fit_costs.fit(measured, {"a GPU": ["a record"], SLOWER: ["another"]}, said.append)
    assert [each.gpu for each in models] == list(measured)
    assert models[0].correction == models[1].correction
    for found, of in zip(models, measured.values(), strict=True):
        assert (found.records, found.costs) == (("a record", "another"), costs[found.gpu])
        assert found.quality.problems == 40
        assert found.quality.launches == len(of.times_us)
        assert 0.5 < found.quality.choice <= 1
        times, _ = model.Model(found).predict(of.launches)
        assert np.median(np.abs(np.log(of.times_us / times))) < error(of, costs[found.gpu])
    assert len(said) == 6
