"""Searching suites on a GPU that is not there: all is noted, stopped runs go on, faults end nothing but themselves."""

import sys
import time
from dataclasses import replace

import msgspec
import pytest
from click.testing import CliRunner

from pretended_gpu import DEVICE, PretendedGpu
from warptile.bench.campaign import suite_search
from warptile.bench.campaign.suite_search import SuiteProblem, suite_problems
from warptile.bench.protocol.suites import SUITES
from warptile.cli.tune import command
from warptile.dtypes import dtype
from warptile.errors import DeviceError
from warptile.gpu import driver
from warptile.planning.plan import config_text
from warptile.planning.tuned_table import Table
from warptile.problem import Problem
from warptile.rungs import RUNGS

BF16 = dtype("bfloat16")


def shape(m, n, k):
    return SuiteProblem(
        f"{m}x{n}x{k}", Problem.dense(m, n, k, BF16, out=BF16, accumulator=dtype("float32"), b_major="col")
    )


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(
        suite_search, "compile_ahead", lambda sources, arch, processes: ((i, None) for i in range(len(sources)))
    )
    monkeypatch.setattr(suite_search, "QUICK", (suite_search.Stage(64, 0.1), suite_search.Stage(3, 0.2, rounds=2)))
    pretended = PretendedGpu().install(monkeypatch)
    monkeypatch.setattr(driver, "device_info", lambda ordinal=None: replace(DEVICE, l2_bytes=20_000))
    pretended.time_ms = lambda rung, config: 0.01 * config["STAGES"]
    return pretended


@pytest.fixture
def tasks():
    return [suite_search.SearchTask.of(shape(16, 128, 512)), suite_search.SearchTask.of(shape(72, 64, 256))]


def entries(folder):
    return list(Table(DEVICE.name, folder).entries())


def run(tasks, folder, seconds=1000):
    said = []
    left = suite_search.work(tasks, folder, time.time() + seconds, said.append)
    return left, said


def test_every_configuration_of_every_problem_is_noted_with_its_rounds(gpu, tasks, tmp_path):
    left, said = run(tasks, tmp_path)
    assert (left, len(said)) == (0, 2)
    found = entries(tmp_path)
    for task in tasks:
        mine = [each for each in found if each.search.problem.m == task.shape.problem.m]
        screened = {config_text(each.config) for each in mine if each.stage == 0}
        assert screened == {config_text(config) for config in task.configs}
        rounds = [each for each in mine if each.stage == 1 and not each.winner]
        assert [len(each.rounds_ms) for each in rounds] == [2, 2, 2]
        fewest = min(config["STAGES"] for config in task.configs)
        assert [each.config["STAGES"] for each in mine if each.winner] == [fewest]


def test_a_run_goes_on_where_time_ran_out(gpu, tasks, tmp_path):
    assert run(tasks[:1], tmp_path)[0] == 0
    launches, before = gpu.launches, len(entries(tmp_path))
    assert run(tasks, tmp_path, seconds=0)[0] == 2
    assert gpu.launches == launches
    assert run(tasks[:1], tmp_path)[0] == 0
    assert (gpu.launches, len(entries(tmp_path))) == (launches, before)


def test_what_does_not_compile_is_noted_and_not_run(gpu, tasks, tmp_path, monkeypatch):
    reason = "CompileError: it spills"
    monkeypatch.setattr(
        suite_search,
        "compile_ahead",
        lambda sources, arch, processes: ((i, None if i else reason) for i in range(len(sources))),
    )
    run(tasks, tmp_path)
    failed = [each for each in entries(tmp_path) if each.failed]
    assert config_text(tasks[0].configs[0]) in {config_text(each.config) for each in failed}
    assert all("it spills" in each.failed for each in failed)


def test_a_lost_gpu_ends_the_worker_and_its_parent_knows_where(gpu, tasks, tmp_path):
    gpu.faults.add("wgmma-final")
    with pytest.raises(DeviceError, match="context is lost"):
        run(tasks, tmp_path)
    doing = msgspec.json.decode(suite_search.state_file(tmp_path).read_bytes(), type=suite_search.WorkerState)
    noted = entries(tmp_path)
    assert [config_text(each.config) for each in noted] == [config_text(doing.config)]
    assert "context is lost" in noted[0].failed


def test_the_parent_notes_a_hang_and_starts_another_worker(tasks, tmp_path, monkeypatch):
    search = suite_search.Search(
        DEVICE.name, "c", "wgmma-final", "s", suite_search.ProblemClass.of(tasks[0].shape.problem)
    )
    statuses = iter([None, suite_search.STATUS_LOST, 0])

    def watch(command, doing, until_s):
        assert command[-3:] == ["small", "--only", "16x"]
        doing.write_bytes(msgspec.json.encode(suite_search.WorkerState(search, dict(tasks[0].configs[0]))))
        return next(statuses)

    monkeypatch.setattr(suite_search, "watch", watch)
    assert suite_search.supervise(["small"], ["16x"], tmp_path, time.time() + 100, lambda text: None)
    assert [each.failed for each in entries(tmp_path)] == ["the worker hung"]


@pytest.mark.parametrize(("seconds", "status"), [("0.6", 0), ("30", None)])
def test_a_worker_hangs_that_begins_nothing_new(tmp_path, monkeypatch, seconds, status):
    monkeypatch.setattr(suite_search, "STALL_S", 1.0)
    doing = suite_search.state_file(tmp_path)
    code = f"import pathlib, time; time.sleep(1.5); pathlib.Path({str(doing)!r}).touch(); time.sleep({seconds})"
    assert suite_search.watch([sys.executable, "-c", code], doing, time.time() + 100) == status


def test_a_worker_that_never_measured_is_not_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(suite_search, "watch", lambda command, doing, until_s: 1)
    assert not suite_search.supervise(["small"], [], tmp_path, time.time() + 100, lambda text: None)


def test_every_row_of_the_suites_is_searched_once():
    found = suite_problems(tuple(SUITES))
    assert len({each.name for each in found}) == len(found) >= 100
    assert len({(each.problem, each.offset) for each in found}) == len(found)
    every = [row for suite in SUITES.values() for row in suite]
    of_final = [row for row in every if row.problem.dtype not in ("float32", "float64") and not row.problem.sparse]
    rows = {row.name for row in of_final if row.max_sms is None}
    missing = rows - {each.name for each in found}
    assert missing == {"4096^3 f16 TN", "8192^3 f16 TN"}  # bf16 serves them
    assert "1024x50304x768 bf16 TN" in {each.name for each in found}  # beside an unaligned one
    displaced = next(each for each in found if each.offset)
    assert displaced.problem.d.alignment_bytes == 2
    assert [each.problem.m for each in found[-8:]] == [1] * 8
    for each in found[:: len(found) // 8]:
        assert suite_search.SearchTask.of(each).configs[0] == RUNGS["wgmma-final"].default_config(each.problem)


def test_the_command_compiles_without_a_gpu_and_refuses_to_measure(monkeypatch):
    asked = []
    monkeypatch.setattr(
        suite_search, "compile_only", lambda tasks, say, processes: asked.append((len(tasks), processes)) or 0
    )
    arguments = ["--suite", "squares", "--only", "4096^3", "--compile-only", "--processes", "2"]
    assert CliRunner().invoke(command, arguments, standalone_mode=False).return_value == 0
    assert asked == [(len([each for each in suite_problems(("squares",)) if "4096^3" in each.name]), 2)]
    assert CliRunner().invoke(command, ["--only", "x"]).exit_code == 2
    none = CliRunner().invoke(command, ["--suite", "squares", "--only", "4097^3", "--compile-only"])
    assert none.exit_code == 2
    assert "--only: got '4097^3'; it takes 1024^3 bf16 TN" in none.output
    assert len(asked) == 1


def test_the_command_asks_where_results_go():
    outcome = CliRunner().invoke(command, ["--suite", "squares"])
    assert outcome.exit_code == 2
    assert "--suite needs --out FOLDER" in outcome.output
