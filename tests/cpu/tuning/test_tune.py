"""The tuner on a fake clock: it finds the fastest, keeps everything, goes on after a stop, and survives failures."""

import math
from collections import Counter
from zlib import crc32

import pytest

from pretended_gpu import PretendedGpu
from warptile.codegen.translation_unit import Source
from warptile.device import REFERENCE, usual
from warptile.dtypes import dtype
from warptile.errors import CompileError, DeviceError, UnsupportedError
from warptile.planning import tuned_table
from warptile.planning.plan import config_text
from warptile.planning.tuned_table import Entry, ProblemClass, Search, Table, config_for, source_of
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.wmma import nine
from warptile.tuning.gpu_search import GpuMeter
from warptile.tuning.search import Stage, compile_ahead, compile_all, offered_by, search, select

RUNG = RUNGS["wmma-final"]
STAGES = (Stage(1000, 1.0), Stage(8, 10.0), Stage(3, 50.0, rounds=3))


def problem(m=4096, n=4096, k=4096, b_major="row", accumulator="float32", element="float16"):
    half = dtype(element)
    return Problem.dense(m, n, k, half, out=half, accumulator=dtype(accumulator), b_major=b_major)


PROBLEM = problem()


class FakeMeter:
    """Times are a function of the configuration; the default's are the slowest. Counts what it is asked for."""

    def __init__(self, fast=None, broken=(), wrong=(), stop_after=None, lost_at=None):
        self.fast, self.broken, self.wrong = fast, set(broken), set(wrong)
        self.stop_after, self.lost_at = stop_after, lost_at
        self.timed, self.checked = Counter(), Counter()

    def check(self, config):
        self.checked[config_text(config)] += 1
        return "wrong result" if config_text(config) in self.wrong else None

    def time_ms(self, config, window_ms):
        text = config_text(config)
        if self.stop_after is not None and sum(self.timed.values()) >= self.stop_after:
            raise KeyboardInterrupt
        if text == self.lost_at:
            raise DeviceError("illegal address; the GPU is gone", context_lost=True)
        if text in self.broken:
            raise CompileError("it spills\nand more")
        self.timed[text] += 1
        if self.fast is not None and text == config_text(self.fast):
            return 0.25
        # Short looks are off by a little, differently for each configuration.
        return 1.0 + sum(config.values()) / 10_000 + (crc32(text.encode()) % 7) / (1000 * window_ms)

    def lost(self, error):
        return isinstance(error, DeviceError) and error.context_lost


@pytest.fixture
def table(tmp_path):
    return Table("NVIDIA H200", tmp_path)


@pytest.fixture(scope="module")
def selected():
    return select(RUNG, PROBLEM, REFERENCE, limit=40)


def run(selected, meter, table, **options):
    return search(RUNG, PROBLEM, selected, meter, table, compiler="NVRTC 13.0.88", stages=STAGES, **options)


def test_the_fastest_wins_wherever_it_stands(selected, table):
    hidden = selected.configs[-1]
    outcome = run(selected, FakeMeter(fast=hidden), table)
    assert dict(outcome.best.config) == dict(hidden)
    assert outcome.best.time_ms == 0.25
    assert (outcome.best.rounds_ms, outcome.reused) == ((0.25, 0.25, 0.25), False)
    assert len(outcome.entries) == len(selected.configs)
    assert [entry.time_ms for entry in outcome.entries[:3]] == sorted(entry.time_ms for entry in outcome.entries[:3])


def test_each_stage_measures_fewer_configurations_for_longer(selected, table):
    meter = FakeMeter()
    run(selected, meter, table)
    assert sum(meter.checked.values()) == len(selected.configs)  # checked once, in the first stage
    # 1 time in the first stage, 8 of them again, 3 of those in three rounds
    assert Counter(meter.timed.values()) == Counter({1: len(selected.configs) - 8, 2: 5, 5: 3})


def test_a_known_outcome_is_reused_without_measuring(selected, table):
    first = run(selected, FakeMeter(fast=selected.configs[3]), table)
    meter = FakeMeter(fast=selected.configs[7])
    again = run(selected, meter, table)
    assert again.reused
    assert sum(meter.timed.values()) == 0
    assert again.best == first.best
    fresh = run(selected, FakeMeter(fast=selected.configs[7]), table, fresh=True)
    assert dict(fresh.best.config) == dict(selected.configs[7])


def test_configurations_that_are_new_are_measured_beside_what_is_known(table):
    few, more = (select(RUNG, PROBLEM, REFERENCE, limit=limit) for limit in (10, 40))
    run(few, FakeMeter(), table)
    meter = FakeMeter()
    outcome = run(more, meter, table)
    assert not outcome.reused
    assert sum(meter.checked.values()) == len(more.configs) - len(few.configs)


@pytest.mark.parametrize("stop_after", [0, 5, 39, 41, 50, 55])
def test_an_interrupted_search_goes_on_where_it_was(selected, table, stop_after):
    stopped = FakeMeter(fast=selected.configs[4], stop_after=stop_after)
    with pytest.raises(KeyboardInterrupt):
        run(selected, stopped, table)
    resumed = FakeMeter(fast=selected.configs[4])
    outcome = run(selected, resumed, table)
    assert dict(outcome.best.config) == dict(selected.configs[4])
    whole = FakeMeter(fast=selected.configs[4])
    run(selected, whole, Table("another", table.path.parent))
    in_the_finals = 3 * 3
    repeated = sum(stopped.timed.values()) + sum(resumed.timed.values()) - sum(whole.timed.values())
    assert 0 <= repeated < in_the_finals  # only rounds of a last stage that was cut short


def test_a_killed_process_leaves_a_line_that_is_skipped(selected, table):
    run(selected, FakeMeter(), table)
    lines = table.path.read_bytes().splitlines(keepends=True)
    table.path.write_bytes(b"".join(lines[:5]) + lines[5][:40])
    assert len(list(table.entries())) == 5
    run(selected, FakeMeter(fast=selected.configs[20]), table)
    assert dict(table.winner(next(table.entries()).search).config) == dict(selected.configs[20])
    assert sum(1 for _ in table.entries()) == len(table.path.read_bytes().splitlines()) - 1


def test_failures_are_kept_with_their_reason_and_the_rest_goes_on(selected, table):
    broken, wrong, fast = (config_text(config) for config in selected.configs[:3])
    meter = FakeMeter(fast=selected.configs[2], broken=[broken], wrong=[wrong])
    outcome = run(selected, meter, table)
    failed = {config_text(entry.config): entry.failed for entry in outcome.entries if entry.time_ms is None}
    assert failed == {broken: "CompileError: it spills", wrong: "wrong result"}
    assert config_text(outcome.best.config) == fast
    assert meter.timed[wrong] == 0


def test_when_everything_fails_there_is_no_winner(selected, table):
    outcome = run(selected, FakeMeter(broken=map(config_text, selected.configs)), table)
    assert outcome.best is None
    assert len(outcome.entries) == len(selected.configs)
    assert not any(entry.winner for entry in table.entries())


def test_a_lost_gpu_ends_the_search_with_what_was_measured_kept(selected, table):
    culprit = config_text(selected.configs[5])
    with pytest.raises(DeviceError, match="the GPU is gone"):
        run(selected, FakeMeter(lost_at=culprit), table)
    assert len(list(table.entries())) == 6
    outcome = run(selected, FakeMeter(fast=selected.configs[9]), table)
    assert dict(outcome.best.config) == dict(selected.configs[9])
    assert culprit in {config_text(entry.config) for entry in outcome.entries if entry.failed}


def test_progress_names_the_stage_and_the_best(selected, table):
    seen = []
    run(selected, FakeMeter(fast=selected.configs[0]), table, report=seen.append)
    first = [progress for progress in seen if progress.doing == "stage 1 of 3"]
    assert (first[0].done, first[-1].done, first[-1].total) == (1, len(selected.configs), len(selected.configs))
    assert first[-1].best_ms == 0.25
    assert seen[-1].doing == "finals"


# --- which configurations ---


def test_a_chip_that_slows_down_changes_no_comparison_beside_the_incumbent(monkeypatch):
    gpu = PretendedGpu().install(monkeypatch)
    problem = Problem.dense(64, 64, 64, dtype("float16"), out=dtype("float16"), accumulator=dtype("float32"))
    rung = RUNGS["wmma-naive"]
    default = rung.default_config(problem)
    other = next(config for config in rung.candidates(problem) if config != default)
    gpu.time_ms = lambda rung, config: (0.9 if config == other else 1.0) * (1 + gpu.now_ms / 20_000)
    alone, beside = GpuMeter(rung, problem, REFERENCE), GpuMeter(rung, problem, REFERENCE, incumbent=default)
    times = [alone.time_ms(config, 500.0) for config in (default, other)]
    assert times[1] > 0.91 * times[0]
    first, faster, again = (beside.time_ms(config, 500.0) for config in (default, other, default))
    assert faster / first == pytest.approx(0.9, rel=0.05)
    assert again / first == pytest.approx(1.0, rel=0.05)


def test_the_space_has_hundreds_of_legal_configurations_and_the_nine():
    found = select(RUNG, PROBLEM, REFERENCE, factor=math.inf)
    texts = [config_text(config) for config in found.configs]
    assert len(texts) == len(set(texts)) >= 300
    assert {config_text(config) for config in nine(PROBLEM)} <= set(texts)
    assert all(RUNG.illegal(PROBLEM, config) is None for config in found.configs)


def test_a_limit_keeps_the_best_predictions_and_what_is_always_tried():
    everything = select(RUNG, PROBLEM, REFERENCE, factor=math.inf)
    found = select(RUNG, PROBLEM, REFERENCE, limit=5, always=nine(PROBLEM))
    texts = [config_text(config) for config in found.configs]
    assert texts[:5] == [config_text(config) for config in everything.configs[:5]]
    wanted = {config_text(config) for config in (*nine(PROBLEM), RUNG.default_config(PROBLEM))}
    assert wanted <= set(texts)
    assert len(texts) <= 5 + len(wanted)
    assert found.pruned == found.offered - found.illegal - len(texts)


def test_nothing_legal_is_an_error_with_the_reason():
    with pytest.raises(
        UnsupportedError, match=f"wmma-final has no legal configuration for this problem on {usual('sm_75').name}"
    ):
        select(RUNG, PROBLEM, usual("sm_75"))


def test_the_default_is_among_what_is_offered():
    for rung in RUNGS.values():
        if "float16" in rung.dtypes:
            offered = [config_text(config) for _, config in offered_by(rung, PROBLEM, REFERENCE)]
            assert config_text(rung.default_config(PROBLEM)) in offered
            assert len(offered) == len(set(offered))


# --- compiling ---


def test_kernels_are_compiled_in_other_processes_and_failures_stay_with_their_source():
    good = Source("__global__ void f(int* p) { *p = 1; }\n", "f")
    bad = Source("__global__ void f(int* p) { *p = nonsense; }\n", "f")
    made = dict(compile_ahead([good, bad], REFERENCE.arch, processes=2))
    assert made[0].entry == "_Z1fPi"
    assert made[1].startswith("CompileError: ")


def test_every_configuration_gets_its_kernel():
    configs = [RUNG.default_config(PROBLEM)]
    seen = []
    made = compile_all(RUNG, PROBLEM, configs, REFERENCE, processes=1, report=seen.append)
    assert made[config_text(configs[0])].resources.spill_bytes == 0
    assert (seen[0].done, seen[0].total) == (1, 1)


# --- the table ---


def entry(search, config, time_ms=1.0, **changes):
    return Entry(search=search, config=dict(config), stage=2, time_ms=time_ms, **changes)


def test_tuned_configurations_are_found_for_the_problem_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("WARPTILE_AUTOTUNE", raising=False)
    config = dict(nine(PROBLEM)[0])
    key = Search("NVIDIA H200", "NVRTC 13.0.88", RUNG.name, source_of(RUNG), ProblemClass.of(PROBLEM))
    Table("NVIDIA H200", tmp_path).append(entry(key, config, winner=True))
    found = {
        name: config_for(RUNG, given, gpu, tmp_path)
        for name, given, gpu in (
            ("same", PROBLEM, "NVIDIA H200"),
            ("type that costs the same", problem(element="bfloat16"), "NVIDIA H200"),
            ("other M", problem(4224, 4096, 4096), "NVIDIA H200"),
            ("other N", problem(4096, 6144, 4096), "NVIDIA H200"),
            ("other K", problem(4096, 4096, 4032), "NVIDIA H200"),
            ("much larger", problem(16384, 16384, 16384), "NVIDIA H200"),
            ("other order", problem(b_major="col"), "NVIDIA H200"),
            ("few rows", problem(64, 4096, 4096), "NVIDIA H200"),
            ("other accumulator", problem(accumulator="float16"), "NVIDIA H200"),
            ("other alignment", problem(4096, 4095, 4096), "NVIDIA H200"),
            ("other GPU", PROBLEM, "NVIDIA A100"),
        )
    }
    served = {"same", "type that costs the same"}
    assert {name for name, value in found.items() if value == config} == served
    assert {name for name, value in found.items() if value is None} == set(found) - served


def test_the_newest_result_of_a_problem_wins_and_those_of_others_do_not_count(tmp_path):
    newest, other = dict(nine(PROBLEM)[0]), dict(nine(PROBLEM)[1])
    table = Table("NVIDIA H200", tmp_path)
    for given, config in ((PROBLEM, other), (PROBLEM, newest), (problem(4096, 8192, 4096), other)):
        key = Search("NVIDIA H200", "c", RUNG.name, source_of(RUNG), ProblemClass.of(given))
        table.append(entry(key, config, winner=True))
    assert config_for(RUNG, PROBLEM, "NVIDIA H200", tmp_path) == newest
    assert config_for(RUNG, problem(4096, 8192, 4096), "NVIDIA H200", tmp_path) == other
    assert config_for(RUNG, problem(4096, 4352, 4096), "NVIDIA H200", tmp_path) is None


def test_results_of_other_sources_and_unfinished_searches_do_not_count(tmp_path):
    table = Table("NVIDIA H200", tmp_path)
    key = Search("NVIDIA H200", "c", RUNG.name, "another source", ProblemClass.of(PROBLEM))
    table.append(entry(key, nine(PROBLEM)[0], winner=True))
    mine = Search("NVIDIA H200", "c", RUNG.name, source_of(RUNG), ProblemClass.of(PROBLEM))
    table.append(entry(mine, nine(PROBLEM)[0]))
    assert config_for(RUNG, PROBLEM, "NVIDIA H200", tmp_path) is None


def test_a_tuned_configuration_that_is_illegal_here_is_not_used(tmp_path):
    key = Search("NVIDIA H200", "c", RUNG.name, source_of(RUNG), ProblemClass.of(PROBLEM))
    Table("NVIDIA H200", tmp_path).append(entry(key, {**nine(PROBLEM)[0], "BM": 48}, winner=True))
    assert config_for(RUNG, PROBLEM, "NVIDIA H200", tmp_path) is None


def test_the_environment_decides(tmp_path, monkeypatch):
    key = Search("NVIDIA H200", "c", RUNG.name, source_of(RUNG), ProblemClass.of(PROBLEM))
    config = dict(nine(PROBLEM)[0])
    Table("NVIDIA H200", tmp_path).append(entry(key, config, winner=True))
    for value, expected in (("off", None), ("cached", config), ("on", config), ("on,any", config), ("", config)):
        monkeypatch.setenv("WARPTILE_AUTOTUNE", value)
        assert config_for(RUNG, PROBLEM, "NVIDIA H200", tmp_path) == expected
    monkeypatch.setenv("WARPTILE_AUTOTUNE", "maybe")
    with pytest.raises(UnsupportedError, match="it takes off, cached, on or on,any"):
        config_for(RUNG, PROBLEM, "NVIDIA H200", tmp_path)


def test_what_running_programs_measured_is_none_of_a_searchs_own(tmp_path):
    key = Search("NVIDIA H200", "c", RUNG.name, source_of(RUNG), ProblemClass.of(PROBLEM))
    first, second = (dict(config) for config in nine(PROBLEM)[:2])
    table = Table("NVIDIA H200", tmp_path)
    table.append(entry(key, first), entry(key, second, online=True), entry(key, second, online=True, winner=True))
    assert [each.config for each in table.of(key)] == [first]
    assert table.winner(key) is None
    assert config_for(RUNG, PROBLEM, "NVIDIA H200", tmp_path) == second
    table.append(entry(key, first, winner=True))
    assert config_for(RUNG, PROBLEM, "NVIDIA H200", tmp_path) == first


def test_a_table_that_cannot_be_written_to_is_a_typed_error_with_the_fix(tmp_path):
    (tmp_path / "file").write_text("")
    key = Search("NVIDIA H200", "c", RUNG.name, source_of(RUNG), ProblemClass.of(PROBLEM))
    with pytest.raises(UnsupportedError, match=r"cannot be kept in .*set WARPTILE_CACHE_DIR"):
        Table("NVIDIA H200", tmp_path / "file" / "tuned").append(entry(key, dict(nine(PROBLEM)[0])))


def test_the_folder_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path))
    assert Table("NVIDIA H200").path == tmp_path / "tuned" / "nvidia-h200.jsonl"
    assert not (tmp_path / "tuned").exists()
    monkeypatch.delenv("WARPTILE_CACHE_DIR")
    assert tuned_table.folder().name == "tuned"


def test_a_rungs_source_covers_the_headers_that_it_shares():
    hashes = {name: source_of(rung) for name, rung in RUNGS.items()}
    assert len(set(hashes.values())) == len(hashes)
