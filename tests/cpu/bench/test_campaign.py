"""The campaign on a pretended GPU: every stage end to end, with rungs that are wrong, slow, or take the GPU down."""

import subprocess
import sys
import time
from dataclasses import replace

import msgspec
import pytest
from click.testing import CliRunner

from covering import ALL, few
from pretended_gpu import L2_SIZES, PretendedGpu
from recorded import all_records, environment, ladder_record
from warptile.bench.campaign import (
    correctness,
    ladder_sweep,
    precision,
    precompile,
    run,
    stages,
    unaligned,
    wgmma_checks,
)
from warptile.bench.campaign.journal import Journal
from warptile.bench.profiling import launch_once
from warptile.bench.profiling.ncu import ProfileError, launched
from warptile.bench.profiling.profile import LaunchRequest, NcuRun, unprofiled
from warptile.bench.protocol import measure_rows, workloads
from warptile.bench.protocol.environment import Sampler
from warptile.bench.protocol.measurements import Check, LadderCell, Profile, Sanitized, Tuning
from warptile.bench.protocol.records import (
    CorrectnessRecord,
    LadderRecord,
    LayoutsRecord,
    ProfileRecord,
    SanitizerRecord,
    SuitesRecord,
    TuningRecord,
    TypesRecord,
    UnalignedRecord,
    decode,
    encode,
)
from warptile.bench.protocol.suites import SUITES, SuiteRow
from warptile.bench.protocol.workloads import (
    BF16,
    CORRECT_SHAPES,
    F16_F32,
    LAYOUT_GROUPS,
    MMA_GROUPS,
    SIZES,
    SPARSE_GROUPS,
    TYPE_GROUPS,
    TYPE_TABLE_RUNGS,
    WGMMA_GROUPS,
    default_config,
    groups_of,
)
from warptile.device import REFERENCE
from warptile.errors import DeviceError
from warptile.gpu import timing
from warptile.planning.plan import config_text
from warptile.rungs import RUNGS
from warptile.rungs.wgmma import residue_classes, tiles
from warptile.rungs.wmma import nine

FOREVER = 4e9
FEW = ("simt-naive", "wmma-naive", "wmma-final")


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(correctness, "CORRECT_SHAPES", ((96, 80, 64), (40, 24, 72), (17, 19, 23)))
    monkeypatch.setattr(stages, "FULL_SIZE", 64)
    monkeypatch.setattr(stages, "LIMIT", 6)
    monkeypatch.setattr(stages, "TUNED", (("wmma-final", F16_F32),))
    monkeypatch.setattr(stages, "describe", lambda samples, library=None: environment(samples=samples))
    monkeypatch.setattr("warptile.tuning.gpu_search.compile_all", lambda *arguments, **options: {})
    return PretendedGpu().install(monkeypatch)


def work(out, names=FEW, sizes=(64,)):
    sampler = Sampler(lambda: (1700.0, 3200.0, 690.0, 50.0), period_s=0.002)
    return stages.Campaign(
        Journal(out / "journal.jsonl"), tuple(RUNGS[name] for name in names), sizes, tuned_folder=out / "tuned",
        say=lambda text: None, sampler=sampler,
    )  # fmt: skip


def records(out):
    made = stages.records_of(
        Journal(out / "journal.jsonl"), date="2026-11-20T12:00:00Z", git_hash="abc", command="c",
        environment=environment(),
    )  # fmt: skip
    kept = [decode(encode(record), "it") for record in made]  # a record keeps seven significant digits
    assert [encode(record) for record in kept] == [encode(record) for record in made]
    return {type(record): record for record in kept}


def test_correctness_covers_every_rung_shape_type_order_and_scale(gpu, tmp_path):
    assert run.worker("correctness", work(tmp_path), FOREVER) == 0
    checks = records(tmp_path)[CorrectnessRecord].checks
    assert all(check.correct for check in checks)
    assert {check.rung for check in checks} == set(FEW)
    for name in FEW:
        mine = [check for check in checks if check.rung == name]
        assert {(c.problem.m, c.problem.n, c.problem.k) for c in mine} == set(correctness.CORRECT_SHAPES)
        assert {"row", "col"} == {c.problem.b_major for c in mine}
        assert {(1.0, 0.0), correctness.SCALED} == {(c.alpha, c.beta) for c in mine}
        types = {"bfloat16", "tfloat32", "float64", "int8", "uint8"}
        assert types | {"float32" if name.startswith("simt") else "float16"} == {c.problem.dtype for c in mine}


@pytest.mark.parametrize(("defect", "field"), [("wrong", "error_ratio"), ("outside", "guards"), ("lazy", "unwritten")])
def test_a_defect_is_found_in_its_rung_and_nowhere_else(gpu, tmp_path, defect, field):
    getattr(gpu, defect).add("wmma-naive")
    run.worker("correctness", work(tmp_path), FOREVER)
    checks = records(tmp_path)[CorrectnessRecord].checks
    half = [check for check in checks if check.rung == "wmma-naive" and check.problem.dtype == "float16"]
    assert half
    assert all(check.correct == (check.rung != "wmma-naive") for check in checks if check.problem.dtype == "float16")
    found = {"error_ratio": half[0].error_ratio > 1 if half[0].error_ratio else False,
             "guards": not half[0].guards_intact, "unwritten": half[0].unwritten > 0}  # fmt: skip
    assert found[field]


def test_the_sweep_measures_each_rung_against_cublaslt(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "_L2_SIZES", L2_SIZES)  # launches that take long enough to be sampled
    gpu.time_ms = lambda rung, config: {"simt-naive": 8.0, "wmma-naive": 2.0, "wmma-final": 1.0}[rung]
    assert run.worker("sweep", work(tmp_path), FOREVER) == 0
    record = records(tmp_path)[LadderRecord]
    speeds = {(cell.rung, cell.problem.accumulator): cell for cell in record.cells}
    assert len(speeds) == 5  # simt-naive in f32, two WMMA rungs with both accumulators
    naive = speeds["wmma-naive", "float32"]
    assert [(r.time_ms, r.baseline_ms) for r in naive.rounds] == [(2.0, 0.5)] * 3
    assert naive.ratio.median == 0.25
    assert (naive.baseline, naive.first_heuristic_ms, naive.method) == ("heuristic 1", 0.75, "events")
    assert naive.samples is not None
    assert naive.error_ratio <= 1
    assert (naive.resources.registers, naive.predicted.arch) == (100, "H200")
    assert [base.best_index for base in record.baselines] == [1, 1, 1]
    assert all("torch" in base.notes for base in record.baselines)
    assert record.failures == ()
    assert record.environment.samples.power_w.median == 690.0


def test_short_kernels_are_timed_by_graph_replay(gpu, tmp_path):
    gpu.time_ms = lambda rung, config: 0.01
    gpu.library_ms = (0.02, 0.005)
    run.worker("sweep", work(tmp_path, ["wmma-final"]), FOREVER)
    for cell in records(tmp_path)[LadderRecord].cells:
        assert cell.method == "graph"
        assert cell.time_ms == pytest.approx(0.01)
        assert cell.ratio.median == pytest.approx(0.5)


def test_a_kernel_that_is_too_slow_is_left_out_and_says_so(gpu, tmp_path):
    gpu.time_ms = lambda rung, config: 30_000.0 if rung == "simt-naive" else 9000.0
    run.worker("sweep", work(tmp_path, ["simt-naive", "wmma-naive"]), FOREVER)
    cells = {cell.rung: cell for cell in records(tmp_path)[LadderRecord].cells}
    assert cells["simt-naive"].rounds == ()
    assert "one launch takes 30.0 s" in cells["simt-naive"].note
    assert len(cells["wmma-naive"].rounds) == 2
    assert "2 of 3 rounds" in cells["wmma-naive"].note


def test_suites_become_a_record_of_every_row(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(measure_rows, "BRIEF", replace(measure_rows.BRIEF, turn_ms=1.0, warm_up_ms=0.0))
    monkeypatch.setattr("warptile.runtime.device_product.operand_sets", lambda *sizes: 2)
    rows = [SuiteRow(BF16.key(64, 64, depth, "col"), ("large",)) for depth in (64, 128, 192)]
    monkeypatch.setitem(SUITES, "llm", tuple(rows))
    state = replace(work(tmp_path), suites=("llm",), brief=True, only=("64x64x",))
    assert len(precompile.sources_of("suites", state)) in (1, 2)  # depths may have one kernel
    assert run.worker("suites", state, FOREVER) == 0
    record = records(tmp_path)[SuitesRecord]
    assert [(each.suite, each.problem.k) for each in record.contests] == [("llm", 128), ("llm", 192)]
    assert all(len(each.rounds_of("ours").rounds_ms) == measure_rows.BRIEF.rounds for each in record.contests)
    assert record.id.startswith("suites-h200-")


def test_a_wrong_rung_has_no_speed(gpu, tmp_path):
    gpu.wrong.add("wmma-naive")
    run.worker("sweep", work(tmp_path), FOREVER)
    cells = [cell for cell in records(tmp_path)[LadderRecord].cells if cell.rung == "wmma-naive"]
    assert all(cell.tflops is None and cell.failed.startswith("wrong result") for cell in cells)


def test_a_rung_that_takes_the_gpu_down_loses_only_itself(gpu, tmp_path):
    gpu.faults.add("wmma-naive")
    with pytest.raises(DeviceError):
        run.worker("sweep", work(tmp_path), FOREVER)
    for _ in range(4):  # each new worker has a new context
        gpu.alive = True
        try:
            run.worker("sweep", work(tmp_path), FOREVER)
        except DeviceError:
            continue
        break
    record = records(tmp_path)[LadderRecord]
    assert {cell.rung for cell in record.cells} == {"simt-naive", "wmma-final"}
    assert [failure.split(":")[0] for failure in record.failures] == [
        "cell/64^3/float16-float32/wmma-naive", "cell/64^3/float16-float16/wmma-naive",
    ]  # fmt: skip


def test_a_worker_stops_in_time_and_the_next_goes_on(gpu, tmp_path):
    assert run.worker("sweep", work(tmp_path), time.time()) == run.STATUS_TIME
    assert records(tmp_path) == {}
    assert run.worker("sweep", work(tmp_path), FOREVER) == 0
    launches = gpu.launches
    assert run.worker("sweep", work(tmp_path), FOREVER) == 0
    assert gpu.launches == launches


def test_tuning_finds_the_fast_one_and_the_sweep_uses_it(gpu, tmp_path):
    key = F16_F32.key(64, 64, 64)
    fast = config_text(nine(stages.to_problem(key))[2])
    gpu.time_ms = lambda rung, config: 0.5 if config_text(config) == fast else 1.0 + sum(config.values()) / 1e6
    assert run.worker("tune", work(tmp_path), FOREVER) == 0
    tunings = records(tmp_path)[TuningRecord].tunings
    mine = next(tuning for tuning in tunings if tuning.problem == key)
    assert config_text(mine.tried[0].config) == fast
    assert len(mine.best_rounds_ms) == 5
    assert {config_text(config) for config in nine(stages.to_problem(key))} <= {
        config_text(tried.config) for tried in mine.tried
    }
    run.worker("sweep", work(tmp_path), FOREVER)
    cell = next(c for c in records(tmp_path)[LadderRecord].cells if c.rung == "wmma-final" and c.problem == key)
    assert (config_text(cell.config), cell.tuned, cell.time_ms) == (fast, True, 0.5)


def test_a_large_size_tries_what_was_best_on_the_whole_space(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "HANDED_ON", 3)
    gpu.time_ms = lambda rung, config: 1.0 + sum(config.values()) / 1e6
    run.worker("tune", work(tmp_path, ["wmma-final"]), FOREVER)
    state = work(tmp_path, ["wmma-final"])
    found = stages.tune_one(state, RUNGS["wmma-final"], F16_F32.key(128, 128, 128))
    whole = next(t for t in records(tmp_path)[TuningRecord].tunings if t.problem == F16_F32.key(64, 64, 64))
    best = [config_text(tried.config) for tried in whole.tried[:3]]
    assert sorted(config_text(tried.config) for tried in found.tried) == sorted(best)


# --- types and layouts ---


@pytest.fixture
def small_type_table(gpu, monkeypatch):
    monkeypatch.setattr(workloads, "TYPE_TABLE_SIZE", 64)
    monkeypatch.setattr(workloads, "F64_SIZE", 32)
    monkeypatch.setattr(precision, "LAYOUT_SIZE", 64)
    monkeypatch.setattr(precision, "SECOND_TYPE_TABLE_SIZE", 48)
    monkeypatch.setattr(precision, "BOTH_REGIMES", tuple(replace(each, pause_s=0) for each in precision.BOTH_REGIMES))
    monkeypatch.setattr("warptile.runtime.device_product.operand_sets", lambda set_bytes, l2_bytes: 2)
    return gpu


def test_the_table_of_types_measures_every_type_in_both_regimes(small_type_table, tmp_path):
    small_type_table.time_ms = lambda rung, config: 0.25 if rung == "mma-sparse" else 0.5
    small_type_table.without_library = {"uint8", "int4", "bit1", "float8_e5m2"}
    assert run.worker("types", work(tmp_path, TYPE_TABLE_RUNGS), FOREVER) == 0
    record = records(tmp_path)[TypesRecord]
    assert record.failures == ()
    cells = {(cell.rung, cell.problem.dtype, cell.problem.accumulator): cell for cell in record.cells}
    dense = {name for rung, name, _ in cells if rung == "mma-final"}
    assert dense == {group.dtype for group in TYPE_GROUPS}
    hopper = [cell for cell in record.cells if cell.rung == "wgmma-final"]
    types = {(c.problem.dtype, c.problem.accumulator) for c in hopper}
    assert types == {(g.dtype, g.accumulator) for g in TYPE_GROUPS if g.name not in ("f64", "s4")}
    for size, regimes in ((64, ["sustained", "cool"]), (48, ["sustained"])):
        mine = [c for c in hopper if c.problem.m == size]
        assert {(c.problem.dtype, c.problem.accumulator) for c in mine} == types
        assert all([each.regime for each in c.times] == regimes for c in mine)
    assert {name for rung, name, _ in cells if rung == "mma-sparse"} == {group.dtype for group in SPARSE_GROUPS}
    half = cells["mma-final", "float16", "float32"]
    assert [(each.regime, each.rounds_ms) for each in half.times] == [("sustained", (0.5,) * 3), ("cool", (0.5,) * 3)]
    assert (half.baseline, half.of_baseline("cool"), half.no_baseline) == ("heuristic 1", 1.0, "")
    assert half.error_ratio <= 1
    assert 0 < half.error < half.drawn_error < 1e-2
    assert cells["mma-sparse", "float16", "float32"].of_baseline("sustained") == 2.0
    narrow = cells["mma-final", "int4", "int32"]
    assert (narrow.error, narrow.drawn_error, narrow.of_baseline("cool")) == (0.0, None, None)
    assert narrow.no_baseline == "baseline: no int4"
    assert cells["mma-final", "float64", "float64"].error < 1e-14
    eighth = cells["mma-final", "float8_e4m3", "float32"]
    assert eighth.error < 1e-2 < eighth.drawn_error


def test_every_layout_is_measured(small_type_table, tmp_path):
    small_type_table.wrong.add("mma-sparse")  # which has no choice of A's major and no part in this
    assert run.worker("layouts", work(tmp_path, TYPE_TABLE_RUNGS), FOREVER) == 0
    cells = records(tmp_path)[LayoutsRecord].cells
    assert {cell.rung for cell in cells} == set(LAYOUT_GROUPS)
    for name, groups in LAYOUT_GROUPS.items():
        for group in groups:
            if default_config(RUNGS[name], stages.to_problem(group.key(64, 64, 64, "col")), "sm_90a") is None:
                continue
            types = (name, group.dtype, group.accumulator)
            mine = [c.problem for c in cells if (c.rung, c.problem.dtype, c.problem.accumulator) == types]
            assert {(key.a_major, key.b_major) for key in mine} == set(group.majors)
    assert {bool(c.copied_bytes) for c in cells if c.problem.dtype == "int8" and c.rung == "wgmma-final"} == {
        False,
        True,
    }
    assert all((c.copies_ms is not None) == bool(c.copied_bytes) for c in cells)
    assert all(cell.tflops("sustained") and cell.tflops("cool") is None for cell in cells)


def test_a_wrong_type_has_no_speed(small_type_table, tmp_path):
    small_type_table.wrong.add("mma-final")
    run.worker("types", work(tmp_path, ["mma-final"]), FOREVER)
    cells = records(tmp_path)[TypesRecord].cells
    assert cells
    assert all(cell.times == () and cell.failed.startswith("wrong result") for cell in cells)


def test_misaligned_problems_are_timed_beside_their_aligned_neighbours(small_type_table, tmp_path, monkeypatch):
    cases = (((31, 48, 64), 0, (32, 48, 64)), ((32, 48, 63), 0, (32, 48, 64)), ((32, 48, 64), 1, (32, 48, 64)))
    monkeypatch.setattr(unaligned, "UNALIGNED", cases)
    names = ["wgmma-store", "wgmma-final"]
    assert run.worker("unaligned", work(tmp_path, names), FOREVER) == 0
    record = records(tmp_path)[UnalignedRecord]
    assert record.failures == ()
    found = {(cell.problem.k, cell.offset): cell for cell in record.cells}
    assert len(record.cells) == len(cases)
    assert {cell.rung for cell in record.cells} == {"wgmma-final"}
    assert found[63, 0].of_neighbour == pytest.approx(63 / 64)  # as long, with less to do
    assert found[64, 1].of_baseline == 0.5
    assert [bool(found[key].copied_bytes) for key in ((64, 0), (63, 0), (64, 1))] == [False, True, True]
    assert (found[64, 0].copies_ms, found[64, 1].neighbour.shape) == (None, "32x48x64")
    small_type_table.wrong.add("wgmma-final")
    (tmp_path / "journal.jsonl").unlink()
    run.worker("unaligned", work(tmp_path, names), FOREVER)
    assert all(cell.failed and cell.tflops is None for cell in records(tmp_path)[UnalignedRecord].cells)


def test_the_wgmma_family_is_checked_in_every_type_layout_alignment_and_mode(monkeypatch):
    groups = few(WGMMA_GROUPS, 3)
    monkeypatch.setattr(correctness, "WGMMA_GROUPS", tuple(groups))
    planned = list(correctness.plan_checks([RUNGS[name] for name in ("wgmma-store", "wgmma-final")], REFERENCE.arch))
    assert len({each.name for each in planned}) == len(planned)
    final = [each for each in planned if each.rung.name == "wgmma-final"]
    places = {(place.grown, tuple(sorted(place.how.items()))) for place in wgmma_checks.PLACEMENTS}
    for group in groups:
        mine = [e for e in final if (e.key.dtype, e.key.accumulator) == (group.dtype, group.accumulator)]
        for majors in group.majors:
            lie = [e for e in mine if (e.key.a_major, e.key.b_major) == majors and e.beta == 0]
            kinds = {(e.key.m, e.key.n, e.key.k, e.offset, e.displaced, e.padding) for e in lie}
            assert len(kinds) >= len(places), (group.name, majors)
        assert {e.problem.a.alignment_bytes for e in mine} >= {16, max(1, mine[0].problem.a.dtype.bits // 8)}
    store = [e for e in planned if e.rung.name == "wgmma-store"]
    assert {(e.key.a_major, e.key.b_major) for e in store if e.key.dtype == "bfloat16"} == set(BF16.majors)
    assert {e.plan(REFERENCE.arch).config["SMS"] for e in store} == {4, REFERENCE.sms}


def test_every_mode_of_the_last_rung_is_taken_in_bfloat16():
    rung, problem = RUNGS["wgmma-final"], stages.to_problem(BF16.key(*wgmma_checks.SHAPE, "col"))
    for mode in wgmma_checks.MODES:
        config = wgmma_checks.mode_config(mode, BF16, 16)
        assert rung.illegal(problem, config) is None, mode
    texts = [config_text(wgmma_checks.mode_config(mode, BF16, 16)) for mode in wgmma_checks.MODES]
    assert len(set(texts)) == len(texts)


def test_checks_of_the_wgmma_family_pass_where_products_are_right(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(wgmma_checks, "SHAPE", (16, 32, 128))
    monkeypatch.setattr(wgmma_checks, "LARGE", (48, 48, 48))
    monkeypatch.setattr(correctness, "WGMMA_GROUPS", WGMMA_GROUPS[:1] + (WGMMA_GROUPS[7:9] if ALL else ()))
    monkeypatch.setattr(wgmma_checks, "MODES", wgmma_checks.MODES[:2])
    assert run.worker("correctness", work(tmp_path, ["wgmma-final"]), FOREVER) == 0
    record = records(tmp_path)[CorrectnessRecord]
    assert record.failures == ()
    assert [check for check in record.checks if not check.correct] == []
    assert {(check.offset, check.displaced, check.padding) for check in record.checks} == {
        (0, "ABCD", 0), (1, "ABCD", 0), (1, "CD", 0), (0, "ABCD", 128), (0, "ABCD", 24),
    }  # fmt: skip


def test_a_write_between_rows_is_found_where_there_are_gaps(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(wgmma_checks, "SHAPE", (16, 32, 128))
    monkeypatch.setattr(wgmma_checks, "LARGE", (48, 48, 48))
    monkeypatch.setattr(correctness, "WGMMA_GROUPS", WGMMA_GROUPS[:1])
    gpu.between.add("wgmma-tma")
    run.worker("correctness", work(tmp_path, ["wgmma-tma"]), FOREVER)
    checks = records(tmp_path)[CorrectnessRecord].checks
    assert all(check.guards_intact == (check.padding == 0) for check in checks if check.problem.dtype == "bfloat16")


def test_the_mma_family_is_checked_in_every_type_layout_and_alignment(monkeypatch):
    groups = few(MMA_GROUPS, 4)
    monkeypatch.setattr(correctness, "MMA_GROUPS", tuple(groups))
    names = ("mma-swizzled", "mma-final", "mma-sparse")
    planned = list(correctness.plan_checks([RUNGS[name] for name in names], REFERENCE.arch))
    assert len({each.name for each in planned}) == len(planned)
    final = [each for each in planned if each.rung.name == "mma-final"]
    for group in groups:
        mine = [e for e in final if (e.key.dtype, e.key.accumulator) == (group.dtype, group.accumulator)]
        assert {(each.key.a_major, each.key.b_major) for each in mine} == set(group.majors)
        assert {each.offset for each in mine} == {0, 1}
    assert all(each.key.sparse == (each.rung.name == "mma-sparse") for each in planned)
    alignments = {each.problem.a.alignment_bytes for each in final if each.key.dtype == "uint8"}
    assert {1, 8} <= alignments


def test_every_check_of_the_mma_family_passes_where_products_are_right(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(correctness, "PACKED_SHAPE", (17, 19, 24))
    state = work(tmp_path, ["mma-final", "mma-sparse"])
    assert run.worker("correctness", state, FOREVER) == 0
    record = records(tmp_path)[CorrectnessRecord]
    assert record.failures == ()
    assert [check for check in record.checks if not check.correct] == []
    assert {check.offset for check in record.checks} == {0, 1}
    assert {check.problem.accumulator for check in record.checks} >= {"int32_saturating", "int32_xor", "float16"}
    assert {check.problem.sparse for check in record.checks} == {False, True}


# --- counters and sanitizer ---


def test_a_profile_that_fails_for_all_is_tried_for_each(tmp_path, monkeypatch):
    asked = []

    def profile(requests):
        asked.append([request.rung for request in requests])
        if len(requests) > 1 or requests[0].rung == "wmma-naive":
            raise ProfileError("ncu wrote no report")
        return NcuRun(tuple(unprofiled(request, "made up") for request in requests), (), (), "1")

    monkeypatch.setattr(stages, "profile", profile)
    monkeypatch.setattr(stages, "describe", lambda samples, library=None: environment())
    assert run.worker("ncu", work(tmp_path), FOREVER) == 0
    record = records(tmp_path)[ProfileRecord]
    assert [profile.rung for profile in record.profiles].count("simt-naive") == 4
    assert sum("wmma-naive" in failure for failure in record.failures) == 4
    assert asked[0] == [name for name in asked[0] if name in FEW]


def test_a_rung_the_sanitizer_did_not_reach_runs_on_its_own(tmp_path, monkeypatch):
    def sanitized(tool, requests):
        names = dict.fromkeys(request.rung for request in requests)
        reached = len(names) == 1
        return tuple(
            Sanitized(rung=name, tool=tool, problems=(), errors=0 if reached or name == "simt-naive" else None)
            for name in names
        )

    monkeypatch.setattr(stages, "run", sanitized)
    monkeypatch.setattr(stages, "describe", lambda samples, library=None: environment())
    assert run.worker("sanitize", work(tmp_path), FOREVER) == 0
    runs = records(tmp_path)[SanitizerRecord].runs
    assert sorted((one.rung, one.tool, one.errors) for one in runs) == sorted(
        (name, tool, 0) for name in FEW for tool in ("memcheck", "racecheck")
    )


def test_requests_take_the_small_and_the_large_configuration():
    requests = stages.sanitize_requests(tuple(RUNGS.values()), "sm_90a")
    assert {request.rung for request in requests} == set(RUNGS)
    assert {r.problem.b_major for r in requests if r.rung == "wgmma-final"} == {"col"}
    assert any(request.beta != 0 for request in requests)
    for request in requests:
        assert RUNGS[request.rung].illegal(stages.to_problem(request.problem), request.config) is None
    mine = [(r.config, stages.to_problem(r.problem)) for r in requests if r.rung == "wgmma-final"]
    for key in ("OVERLAP", "PINGPONG", "STREAM", "SWAP"):
        assert {config[key] for config, _ in mine} == {0, 1}
    assert {config["SPLITS"] for config, _ in mine} == {1, 2, 3}
    assert any(tiles.takes_unaligned_a(problem, config) and config["SPLITS"] > 1 for config, problem in mine)
    assert any(len(tiles.view(problem, config).repacks) == 2 for config, problem in mine)
    assert any(config["OVERLAP"] and not residue_classes.d_is_aligned(problem) for config, problem in mine)
    final = {config_text(request.config) for request in requests if request.rung == "wmma-final"}
    assert len(final) >= 2


# --- what the whole campaign is ---


def test_every_rung_is_swept_over_every_size_and_checked_on_every_shape():
    rungs = few(list(RUNGS.values()), 12)
    state = stages.Campaign(Journal.__new__(Journal), tuple(rungs))
    names = [name for name, _ in correctness.tasks(state.rungs, correctness.Checker("sm_90a"))]
    assert len(names) == len(set(names))
    cells = [name for name, _ in ladder_sweep.tasks(state.rungs, "sm_90a", None, None)]
    assert len(cells) == len(set(cells))
    for rung in rungs:
        assert groups_of(rung, "sm_90a")
        for size in SIZES:
            assert any(name.startswith(f"cell/{size}^3/") and name.endswith(f"/{rung.name}") for name in cells)
        if rung.family == "wgmma":
            shapes = (wgmma_checks.LARGE, wgmma_checks.SHAPE)
        else:
            shapes = CORRECT_SHAPES[: 2 if rung.sparse else 3]  # a sparse A has whole groups of K
        for m, n, k in shapes:
            shape = f"{m}^3" if m == n == k else f"{m}x{n}x{k}"
            assert any(name.startswith(f"check/{shape}/") and name.endswith(f"/{rung.name}") for name in names)


def test_each_stage_knows_its_kernels():
    state = stages.Campaign(Journal.__new__(Journal), (RUNGS["simt-naive"], RUNGS["wmma-final"]))
    for stage in ("correctness", "sweep", "ncu", "sanitize"):
        sources = precompile.sources_of(stage, state)
        assert sources
        assert len(sources) == len(set(sources))
        assert any("simt" in source.text for source in sources)
    hopper = stages.Campaign(Journal.__new__(Journal), (RUNGS["wgmma-final"],), (4096,))
    copying = [
        source for source in precompile.sources_of("unaligned", hopper) if "operand_repack" in source.name_expression
    ]
    assert copying


def test_a_campaign_may_be_limited_to_types():
    state = stages.Campaign(Journal.__new__(Journal), (RUNGS["wgmma-final"],), (4096,), types=("bf16",))
    assert [name for name, _ in state.tasks("tune")] == ["tune/4096^3/bfloat16-float32-row-col/wgmma-final"]
    assert all("/bfloat16" in name for name, _ in state.tasks("sweep"))


def test_racecheck_leaves_out_what_it_cannot_follow(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(stages, "run", lambda tool, requests: asked.append((tool, {r.rung for r in requests})) or ())
    monkeypatch.setattr(stages, "describe", lambda samples, library=None: environment())
    run.worker("sanitize", work(tmp_path, ["mma-naive", "wgmma-tma"]), FOREVER)
    assert ("memcheck", {"mma-naive", "wgmma-tma"}) in asked
    assert {name for tool, names in asked for name in names if tool == "racecheck"} == {"mma-naive"}


# --- watching over workers ---


def python(code):
    return [sys.executable, "-c", code]


def test_the_exit_status_of_a_worker_is_seen(tmp_path):
    assert run._watch(python("raise SystemExit(3)"), tmp_path, FOREVER) == 3
    assert run._watch(python("import os; os.kill(os.getpid(), 11)"), tmp_path, FOREVER) == -11


def test_a_worker_that_hangs_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "STALL_S", 0.6)
    assert run._watch(python("import time; time.sleep(60)"), tmp_path, FOREVER) is None


def test_a_worker_that_outlives_the_time_is_ended_and_its_task_is_not_blamed(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.start("cell/a")
    assert run._watch(python("import time; time.sleep(60)"), tmp_path, time.time() + 0.5) == run.STATUS_TIME
    assert Journal(tmp_path / "journal.jsonl").fail_unfinished("x") == []


def test_workers_follow_each_other_until_the_stage_is_done(tmp_path, monkeypatch):
    def watch(command, out, until_s):
        journal = Journal(out / "journal.jsonl")
        for name in ("a", "crash", "b"):
            if not journal.settled(name):
                journal.start(name)
                if name == "crash":
                    return -11
                journal.finish(name, 1)
        return 0

    monkeypatch.setattr(run, "_watch", watch)
    assert run.supervise("sweep", tmp_path, [], FOREVER)
    journal = Journal(tmp_path / "journal.jsonl")
    assert journal.results(int).keys() == {"a", "b"}
    assert journal.failures() == {"crash": "the worker ended with status -11"}


def test_a_stage_whose_workers_do_nothing_is_given_up(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(run, "_watch", lambda *arguments: calls.append(1) or 1)
    assert run.supervise("sweep", tmp_path, [], FOREVER)
    assert len(calls) == 2


def test_without_a_gpu_every_failure_is_said_and_the_program_ends(tmp_path):
    command = [sys.executable, "-m", "warptile.bench.campaign.run", "--out", str(tmp_path / "out"), "--stage", "ncu",
               "--rung", "simt-naive", "--git", "abc"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "ncu: Nsight Compute is not on the PATH" in done.stdout
    assert "ncu/2048x2048x2048" in done.stdout


# --- taking records over ---


def test_records_are_adopted_under_their_names_with_notes(tmp_path):
    source, target = tmp_path / "out", tmp_path / "data"
    source.mkdir()
    for record in all_records():
        (source / f"{type(record).__name__}.json").write_bytes(encode(record))
    outcome = CliRunner().invoke(run.main, ["--adopt", str(source), "--notes", "what was learned"])
    assert outcome.exit_code == 2
    assert "--adopt needs --records FOLDER" in outcome.output
    said = ["--notes", "what was learned", "--prediction", "what was said", "--records", str(target)]
    assert CliRunner().invoke(run.main, ["--adopt", str(source), *said]).exit_code == 0
    written = list(target.iterdir())
    assert {path.name for path in written} == {f"{record.id}.json" for record in all_records()}
    for path in written:
        record = decode(path.read_bytes(), path.name)
        assert (record.notes, record.prediction) == ("what was learned", "what was said")


def test_adopting_needs_the_folder_to_write_to(tmp_path):
    outcome = CliRunner().invoke(run.main, ["--adopt", str(tmp_path)])
    assert outcome.exit_code == 2
    assert "--adopt needs --records" in outcome.output


def test_a_run_goes_on_from_an_earlier_folder(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    Journal(before / "journal.jsonl").finish("a", 1)
    Journal(before / "journal.jsonl").fail("b", "why")
    (before / "tuned").mkdir()
    (before / "tuned" / "nvidia-h200.jsonl").write_text("{}\n")
    run._begin(after, before, retry=False)
    assert Journal(after / "journal.jsonl").failures() == {"b": "why"}
    assert (after / "tuned" / "nvidia-h200.jsonl").exists()
    run._begin(after, before, retry=True)
    assert not Journal(after / "journal.jsonl").settled("b")
    assert Journal(after / "journal.jsonl").settled("a")


def test_the_command_needs_a_folder():
    outcome = CliRunner().invoke(run.main, [])
    assert outcome.exit_code == 2
    assert "--out is needed" in outcome.output


def test_journal_results_are_records_fields(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    record = ladder_record()
    journal.finish("cell/x", record.cells[0])
    assert journal.results(LadderCell)["cell/x"] == record.cells[0]
    assert msgspec.structs.fields(Check)
    assert msgspec.structs.fields(Profile)
    assert msgspec.structs.fields(Tuning)
    assert LaunchRequest("a", F16_F32.key(1, 1, 1), {}).beta == 0


# --- the program under the profilers ---


def test_each_request_is_launched_once_and_a_failing_one_says_so(gpu, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(launch_once, "compiled", gpu.compiled)
    monkeypatch.setattr(launch_once.loader, "load", gpu.load)
    shape = (40, 24, 72)
    requests = stages.profile_requests(tuple(RUNGS[name] for name in FEW), "sm_90a", shape)
    scaled = msgspec.structs.replace(requests[-1], alpha=0.5, beta=2.0)
    broken = LaunchRequest("wmma-final", F16_F32.key(*shape), {"BM": 1})
    path = tmp_path / "requests.json"
    path.write_bytes(msgspec.json.encode([*requests, broken, scaled]))
    assert launch_once.main(str(path)) == 1
    made, failed = launched(capsys.readouterr().out)
    assert made == [*range(len(requests)), len(requests) + 1]
    assert failed[len(requests)].startswith("ArgumentError: ")
    assert gpu.launches == len(made)
